import { type RawBuilder, sql } from 'kysely';
import type { Database } from '../db/connect.ts';
import { rfc3339 } from '../db/sql.ts';
import { environmentNotFound } from './errors.ts';
import { isQueuedIn } from './items.ts';

/** A worker counts as polling when its last poll was open or answered within this time (contract §3). */
export const WORKER_POLLING_SECONDS = 30;

export type QueueStats = {
  readonly environmentId: string;
  /** Queued and free to be handed out now. */
  readonly depth: number;
  /** Queued, handed out, not yet acked, reservation live. */
  readonly pending: number;
  /** The oldest queued of both, null when there is none. */
  readonly oldestQueuedAt: string | null;
  /** Distinct worker ids. */
  readonly workersPolling: number;
};

/** What the gauges observe beside. */
export type QueueGauges = QueueStats & {
  /** Stopped as exhausted or failed, and still remembered. */
  readonly setAside: number;
};

/** One environment's figures. Refuses: environment_not_found. */
export async function stats(database: Database, environmentId: string): Promise<QueueStats> {
  const [row] = await database.rows(figures(database, sql`where e.id = ${environmentId}`));
  if (row === undefined) throw environmentNotFound(environmentId);
  return row;
}

/** The same figures of every self_hosted environment that is not archived, in one statement: what the gauges observe. */
export const allStats = (database: Database): Promise<QueueGauges[]> =>
  database.rows(sql<QueueGauges>`
    select f.*, (select count(*) from ${database.names.workItems} w where w.environment_id = f."environmentId"
      and w.state = 'stopped' and w.stop_reason in ('exhausted', 'failed')
      and not exists (select from ${database.names.workItems} n where n.requeued_from = w.id))::integer as "setAside"
    from (${figures(database, sql`where e.type = 'self_hosted' and e.archived_at is null`)}) f`);

/** The statement; its rows are QueueStats. */
export function figures({ names: { environments, workItems, workerSightings } }: Database, where: RawBuilder<unknown>) {
  return sql<QueueStats>`
    select e.id as "environmentId", q.depth::integer as depth, q.pending::integer as pending,
      ${rfc3339(sql`q.oldest`)} as "oldestQueuedAt",
      (select count(*) from ${workerSightings} s where s.environment_id = e.id
        and s.seen_at > clock_timestamp() - ${sql.lit(WORKER_POLLING_SECONDS)} * interval '1 second')::integer as "workersPolling"
    from ${environments} e cross join lateral (
      select count(*) filter (where not f.reserved) as depth, count(*) filter (where f.reserved) as pending,
        min(f.created_at) as oldest
      from (
        select w.created_at, coalesce(w.lease_expires_at > clock_timestamp(), false) as reserved
        from ${workItems} w
        where ${isQueuedIn(sql`e.id`)}
          and (w.not_before is null or w.not_before <= clock_timestamp())
      ) f
    ) q ${where}`;
}
