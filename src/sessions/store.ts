import { sql } from 'kysely';
import type { Database } from '../db/connect.ts';
import { given } from '../db/sql.ts';
import { mintId } from '../queue/ids.ts';
import type { LockedSession } from './lock.ts';
import { needsWorker, type StatusEvent, type Turn } from './turn.ts';

/** An event with its JSON, as it is stored and answered for ever. */
export type StoredEvent = {
  readonly id: string;
  readonly type: string;
  readonly answers: string | null;
  readonly event: string;
};

/** How a session stands with its workers: see `rearm.ts`. */
export type Arming = { readonly isHeld: boolean; readonly armCount: number };

/** The event as clients see it. */
export const eventJson = (id: string, processedAt: string, { type, ...fields }: { readonly type: string }): string =>
  JSON.stringify({ id, type, ...fields, processed_at: processedAt });

export const statusToStore = (event: StatusEvent, processedAt: string): StoredEvent => {
  const id = mintId('sevt');
  return { id, type: event.type, answers: null, event: eventJson(id, processedAt, event) };
};

/**
 * Adds events to a session that is locked, and what it has come to by them. Guarded by the number of its last event; throws where
 * that is another one, which a lock makes impossible.
 */
export async function storeEvents(
  database: Database,
  { session, lastSeq, now }: LockedSession,
  events: readonly StoredEvent[],
  turn: Turn,
  { isHeld, armCount }: Arming,
): Promise<void> {
  const { sessions, sessionEvents } = database.names;
  const [stored] = await database.rows(sql<{ id: string }>`
    with changed as (
      update ${sessions} s
      set status = ${turn.status}, stop_reason = ${turn.stopReason === null ? null : JSON.stringify(turn.stopReason)},
        open_calls = ${JSON.stringify(turn.openCalls)}, worker_tools = ${JSON.stringify(turn.workerTools)},
        needs_worker = ${needsWorker(turn)}, is_held = ${isHeld}, arm_count = ${armCount}::integer,
        last_seq = s.last_seq + ${events.length}::integer, last_event_at = ${now}::timestamptz, updated_at = ${now}::timestamptz,
        archived_at = case when ${turn.status} = 'terminated' then coalesce(s.archived_at, ${now}::timestamptz) else s.archived_at end
      where s.id = ${session.id} and s.last_seq = ${lastSeq}::bigint
      returning s.id
    ), added as (
      insert into ${sessionEvents} (session_id, seq, id, type, answers, processed_at, bytes, event)
      select c.id, ${lastSeq}::bigint + t.slot, t.id, t.type, t.answers, ${now}::timestamptz, octet_length(t.event), t.event
      from changed c, ${given(events, {
        id: ['text', (e) => e.id],
        type: ['text', (e) => e.type],
        answers: ['text', (e) => e.answers],
        event: ['text', (e) => e.event],
      })}
    )
    select c.id from changed c`);
  if (stored === undefined) throw new Error(`session ${session.id} was changed by somebody who had not locked it`);
}
