import { type RawBuilder, sql } from 'kysely';
import type { Database } from './db/connect.ts';
import { given, type TableNames } from './db/sql.ts';
import { isLapsed } from './process/free-items.ts';
import { isQueuedIn, standsIn, WORK_KINDS } from './queue/items.ts';
import { SWEEP_PATIENCE_SECONDS } from './queue/sweep.ts';
import { hasUnserved } from './sessions/rearm.ts';

/** Who waits in an environment for what was enqueued that long ago. */
export type WaitingLine = { readonly environmentId: string; readonly minQueuedAgeMs: number };

export type Overview = {
  /** The places of those lines that a look would find something for. */
  readonly found: readonly number[];
  readonly isToSweep: boolean;
  readonly isToReap: boolean;
  readonly isDue: boolean;
  readonly isUnserved: boolean;
};

/**
 * One look over all (design §5): which of the lines are not empty, be it that something has become due, or lapsed, or that no notification told of it;
 * and what the background has to do. It takes nothing.
 */
export async function lookOver(database: Database, lines: readonly WaitingLine[]): Promise<Overview> {
  const { environments, workItems } = database.names;
  const queued = isQueuedIn(sql`t.environment_id`);
  const isFree = sql`(w.lease_expires_at is null or w.lease_expires_at <= clock_timestamp())`;
  const isOldEnough = sql`(t.age_ms = 0 or w.created_at <= statement_timestamp() - t.age_ms * interval '1 millisecond')`;
  const item = (where: RawBuilder<unknown>) => sql`exists (
    select from ${workItems} w where ${where} and ${isOldEnough})`;
  const [row] = await database.rows(sql<Omit<Overview, 'found'> & { found: string | null }>`
    select (
      select json_agg(t.slot - 1)::text
      from ${given(lines, {
        environment_id: ['text', (line) => line.environmentId],
        age_ms: ['integer', (line) => line.minQueuedAgeMs],
      })} join ${environments} e on e.id = t.environment_id
      where e.paused_at is null and (
        ${item(sql`${queued} and w.not_before is null and ${isFree}`)}
        or ${item(sql`${queued} and w.not_before <= statement_timestamp() and ${isFree}`)}
        or ${item(sql`${standsIn(sql`t.environment_id`)} and w.state in ('starting', 'active') and w.lease_expires_at <= clock_timestamp()`)})
    ) as found, ${hasToSweep(database.names)} as "isToSweep", ${hasLapsed(database.names)} as "isToReap",
      ${hasComeDue(database.names)} as "isDue", ${hasUnserved(database.names)} as "isUnserved"`);
  if (row === undefined) throw new Error('a look over all has no answer');
  return { ...row, found: row.found === null ? [] : JSON.parse(row.found) };
}

/** Whether a sweep may find something: what it looks for, but for the caps. */
const hasToSweep = ({ workItems }: TableNames): RawBuilder<boolean> => {
  const patience = sql`clock_timestamp() - ${sql.lit(SWEEP_PATIENCE_SECONDS)} * interval '1 second'`;
  return sql`(exists (select from ${workItems} w where w.lane = 'wire' and w.state = 'stopping'
      and (w.lease_expires_at is null or w.lease_expires_at <= clock_timestamp()))
    or exists (select from ${workItems} w where w.lane = 'wire' and w.state in ('starting', 'active')
      and w.lease_expires_at <= ${patience})
    or exists (select from ${workItems} w where w.lane = 'wire' and w.state = 'queued' and w.is_last_hand_out
      and (w.lease_expires_at is null or w.lease_expires_at <= ${patience})))`;
};

/** Whether a reap may find something. */
const hasLapsed = ({ workItems }: TableNames): RawBuilder<boolean> =>
  sql`exists (select from ${workItems} w where ${isLapsed})`;

/** Whether something has come due. */
const hasComeDue = ({ workItems }: TableNames): RawBuilder<boolean> =>
  sql`exists (select from unnest(${[...WORK_KINDS]}::text[]) k (kind) cross join lateral (
    select from ${workItems} w where w.kind = k.kind and w.lane = 'process' and w.state = 'queued'
      and w.next_attempt_at <= statement_timestamp() limit 1) d)`;
