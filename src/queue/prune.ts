import { sql } from 'kysely';
import type { Database } from '../db/connect.ts';
import type { QueueSettings } from './settings.ts';

const ROWS_PER_STATEMENT_MAX = 50;
/** Of one environment: more could not be removed, so more need not be looked for. */
const ROWS_PER_ENVIRONMENT_MAX = ROWS_PER_STATEMENT_MAX;
const SIGHTINGS_KEPT_SECONDS = 3_600;

export type Pruned = {
  readonly pruned: number;
  /** True when the bound was reached: there is more, prune again. */
  readonly more: boolean;
};

/**
 * Removes what has been finished for its environment's retention time, with its inputs, request ids and hand-outs, and forgets
 * workers that were not seen for an hour. Replicas take turns by an advisory lock; bounded, and skips what others hold.
 * statement_timestamp: what is volatile would keep the index out, and all that is kept would be read each time.
 */
export async function prune(
  database: Database,
  { retentionDays }: Pick<QueueSettings, 'retentionDays'>,
): Promise<Pruned> {
  const { environments, workItems, workerSightings } = database.names;
  const [row] = await database.rows(sql<{ pruned: number }>`
    with turn as materialized (
      select pg_try_advisory_xact_lock(hashtextextended(${`${database.schema} prune`}, 0)) as mine
    ), finished as materialized (
      select o.seq from turn, ${environments} e cross join lateral (
        select w.seq from ${workItems} w
        where w.environment_id = e.id and w.state = 'stopped'
          and w.stopped_at < statement_timestamp() - coalesce(e.retention_days, ${retentionDays}::integer) * interval '1 day'
        order by w.stopped_at limit ${sql.lit(ROWS_PER_ENVIRONMENT_MAX)} for update of w skip locked
      ) o
      where turn.mine limit ${sql.lit(ROWS_PER_STATEMENT_MAX)}
    ), pruned as (
      delete from ${workItems} w using finished f where w.seq = f.seq returning w.seq
    ), forgotten as (
      delete from ${workerSightings} s using turn
      where turn.mine and s.seen_at < clock_timestamp() - ${sql.lit(SIGHTINGS_KEPT_SECONDS)} * interval '1 second'
    )
    select (select count(*) from pruned)::integer as pruned from turn`);
  const pruned = row?.pruned ?? 0;
  return { pruned, more: pruned >= ROWS_PER_STATEMENT_MAX };
}
