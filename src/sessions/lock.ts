import { sql } from 'kysely';
import type { Database } from '../db/connect.ts';
import { rfc3339 } from '../db/sql.ts';
import { sessionAnswer, type SessionRow } from './session.ts';
import type { OpenCall, Turn } from './turn.ts';

/** A session that is ours until the transaction ends: nobody else appends, and what its row says is the truth. */
export type LockedSession = Turn & {
  readonly session: SessionRow;
  readonly lastSeq: number;
  /** By the database's clock, and never before an event that is stored. */
  readonly now: string;
  /** Since its last event. */
  readonly quietSeconds: number;
  readonly isHeld: boolean;
  readonly armCount: number;
};

type Row = SessionRow & {
  readonly stopReason: string | null;
  readonly openCalls: string;
  readonly workerTools: string;
  readonly lastSeq: string;
  readonly now: string;
  readonly quietSeconds: string;
  readonly isHeld: string;
  readonly armCount: string;
};

/**
 * Locks a session, in a transaction. A statement of its own: what else one statement reads may be older than the lock that it waited for.
 * Undefined: there is none, or with `skip` somebody else has it.
 */
export async function lockSession(
  database: Database,
  id: string,
  locking: 'wait' | 'skip' = 'wait',
): Promise<LockedSession | undefined> {
  const { sessions } = database.names;
  const [row] = await database.rows(sql<Row>`
    select ${sessionAnswer('s')}, s.stop_reason as "stopReason", s.open_calls as "openCalls", s.worker_tools as "workerTools",
      s.last_seq::text as "lastSeq", ${rfc3339(sql`greatest(clock_timestamp(), s.last_event_at)`)} as now,
      extract(epoch from clock_timestamp() - s.last_event_at)::text as "quietSeconds", s.is_held::text as "isHeld",
      s.arm_count::text as "armCount"
    from ${sessions} s where s.id = ${id} for no key update ${locking === 'skip' ? sql`skip locked` : sql``}`);
  if (row === undefined) return undefined;
  const { stopReason, openCalls, workerTools, lastSeq, now, quietSeconds, isHeld, armCount, ...session } = row;
  return {
    session,
    status: session.status,
    stopReason: stopReason === null ? null : JSON.parse(stopReason),
    openCalls: JSON.parse(openCalls) as OpenCall[],
    workerTools: JSON.parse(workerTools) as string[],
    lastSeq: Number(lastSeq),
    now,
    quietSeconds: Number(quietSeconds),
    isHeld: isHeld === 'true',
    armCount: Number(armCount),
  };
}
