import { sql } from 'kysely';
import { type Database, within } from '../db/connect.ts';
import { jsonOf } from '../queue/check-enqueue.ts';
import { environmentNotFound, QueueError } from '../queue/errors.ts';
import { mintId } from '../queue/ids.ts';
import type { Offered, TraceContext } from '../queue/items.ts';
import { checkMetadata, checkText, LIMITS } from '../queue/limits.ts';
import { appendLocked, checkEvents } from './append.ts';
import type { SentEvent } from './events.ts';
import { lockSession } from './lock.ts';
import { type Session, type SessionRow, sessionAnswer, toSession } from './session.ts';

export type NewSession = {
  /** Self_hosted: workers poll its work. */
  readonly environmentId: string;
  /** 1 to 512 characters. */
  readonly title?: string | null;
  readonly metadata?: Readonly<Record<string, string>>;
  /** Any of the official fields of an agent, at most 256 KiB of JSON: for the agent loop and its observers, nothing here reads it. */
  readonly agent?: Readonly<Record<string, unknown>>;
  /** Appended with it. */
  readonly initialEvents?: readonly SentEvent[];
};

/**
 * A new session, idle. Nobody is enqueued for it before an event needs a worker. Refuses: environment_not_found, environment_archived,
 * invalid_request (also for a cloud environment), invalid_metadata, and what appending refuses.
 */
export async function createSession(
  database: Database,
  { environmentId, title = null, metadata = {}, agent = {}, initialEvents = [] }: NewSession,
  traceContext?: TraceContext,
): Promise<{ session: Session; offered: readonly Offered[] }> {
  checkText('environment_id', environmentId, LIMITS.idCharacters);
  if (title !== null) checkText('title', title, LIMITS.titleCharacters);
  checkMetadata(metadata);
  const agentText = jsonOf('agent', agent);
  if (Buffer.byteLength(agentText) > LIMITS.agentBytes) {
    throw new QueueError('invalid_request', `agent must be at most ${LIMITS.agentBytes} bytes of JSON`);
  }
  checkEvents(initialEvents, 'initial_events');
  const { sessions, environments } = database.names;
  return database.transaction(async (transaction) => {
    const bound = within(database, transaction);
    const id = mintId('sesn');
    const [found] = await bound.rows(sql<{ type: string; isArchived: string; id: string | null }>`
      with place as materialized (
        select e.id, e.type, e.archived_at is not null as is_archived from ${environments} e
        where e.id = ${environmentId} for key share
      ), created as (
        insert into ${sessions} (id, environment_id, title, metadata, agent, status)
        select ${id}, p.id, ${title}, ${JSON.stringify(metadata)}::jsonb, ${agentText}, 'idle'
        from place p where p.type = 'self_hosted' and not p.is_archived
        returning id
      )
      select p.type, p.is_archived::text as "isArchived", c.id from place p left join created c on true`);
    if (found === undefined) throw environmentNotFound(environmentId);
    if (found.id === null) throw refusal(environmentId, found.isArchived === 'true');
    let offered: readonly Offered[] = [];
    if (initialEvents.length > 0) {
      const locked = await lockSession(bound, id);
      if (locked === undefined) throw new Error('a session that was just made is not there');
      ({ offered } = await appendLocked(bound, locked, initialEvents, 'agent', traceContext, 'initial_events'));
    }
    const [row] = await bound.rows(sql<SessionRow>`select ${sessionAnswer('s')} from ${sessions} s where s.id = ${id}`);
    if (row === undefined) throw new Error('a session that was just made is not there');
    return { session: toSession(row), offered };
  });
}

const refusal = (environmentId: string, isArchived: boolean): QueueError =>
  isArchived
    ? new QueueError('environment_archived', `environment ${environmentId} is archived: it takes no new sessions`)
    : new QueueError(
        'invalid_request',
        `environment_id: ${environmentId} is a cloud environment: sessions are for self_hosted ones, whose workers poll`,
      );
