import { sql } from 'kysely';
import type { Database } from '../db/connect.ts';

/** A lapsed item is left this long to its holder's late heartbeat, and to polls, before the sweep takes it (contract §4). */
export const SWEEP_PATIENCE_SECONDS = 2;
const ROWS_PER_STATEMENT_MAX = 500;
const SIGHTINGS_KEPT_SECONDS = 3_600;

export type Swept = {
  readonly finalised: number;
  readonly requeued: number;
  readonly pruned: number;
  /** Where items became free to be handed out: their waiters are to be woken. */
  readonly environmentIds: readonly string[];
  /** True when a bound was reached: there is more, sweep again. */
  readonly more: boolean;
};

/**
 * The background's one statement: finalises abandoned `stopping` items, puts lapsed `starting` and `active` ones back to
 * queued, removes what has been finished for the retention time, forgets workers not seen for an hour. Replicas take turns by
 * an advisory lock; bounded, and skips what others hold.
 */
export async function sweep(database: Database, { retentionDays }: { retentionDays: number }): Promise<Swept> {
  const { workItems, workerSightings } = database.names;
  const [row] = await database.rows(sql<{
    finalised: number;
    requeued: number;
    pruned: number;
    environments: string | null;
  }>`
    with turn as materialized (
      select pg_try_advisory_xact_lock(hashtextextended(${`${database.schema} sweep`}, 0)) as mine
    ), abandoned as materialized (
      select w.seq from ${workItems} w, turn
      where turn.mine and w.lane = 'wire' and w.state = 'stopping'
        and (w.lease_expires_at is null or w.lease_expires_at <= clock_timestamp())
      order by w.seq limit ${sql.lit(ROWS_PER_STATEMENT_MAX)} for update of w skip locked
    ), finalised as (
      update ${workItems} w
      set state = 'stopped', stopped_at = clock_timestamp(), stop_reason = 'abandoned', lease_expires_at = null
      from abandoned a where w.seq = a.seq
      returning w.seq
    ), lapsed as materialized (
      select w.seq from ${workItems} w, turn
      where turn.mine and w.lane = 'wire' and w.state in ('starting', 'active')
        and w.lease_expires_at <= clock_timestamp() - ${sql.lit(SWEEP_PATIENCE_SECONDS)} * interval '1 second'
      order by w.seq limit ${sql.lit(ROWS_PER_STATEMENT_MAX)} for update of w skip locked
    ), requeued as (
      update ${workItems} w
      set state = 'queued', lapsed_at = w.lease_expires_at,
        lapsed_acknowledged_at = coalesce(w.lapsed_acknowledged_at, w.acknowledged_at),
        lapsed_started_at = coalesce(w.lapsed_started_at, w.started_at),
        lapsed_heartbeat = coalesce(w.last_heartbeat, w.lapsed_heartbeat),
        lapsed_state = case when w.lapsed_state = 'active' then 'active' else w.state end, lease_expires_at = null, lease_ttl_seconds = null,
        acknowledged_at = null, started_at = null, last_heartbeat = null, replaced_heartbeat = null
      from lapsed l where w.seq = l.seq
      returning w.environment_id
    ), finished as materialized (
      select w.seq from ${workItems} w, turn
      where turn.mine and w.state = 'stopped' and w.stopped_at < clock_timestamp() - ${retentionDays} * interval '1 day'
      order by w.stopped_at limit ${sql.lit(ROWS_PER_STATEMENT_MAX)} for update of w skip locked
    ), pruned as (
      delete from ${workItems} w using finished f where w.seq = f.seq returning w.seq
    ), forgotten as (
      delete from ${workerSightings} s using turn
      where turn.mine and s.seen_at < clock_timestamp() - ${sql.lit(SIGHTINGS_KEPT_SECONDS)} * interval '1 second'
    )
    select (select count(*) from finalised)::integer as finalised, (select count(*) from requeued)::integer as requeued,
      (select count(*) from pruned)::integer as pruned,
      (select json_agg(distinct r.environment_id)::text from requeued r) as environments`);
  const { finalised = 0, requeued = 0, pruned = 0, environments = null } = row ?? {};
  return {
    finalised,
    requeued,
    pruned,
    environmentIds: environments === null ? [] : JSON.parse(environments),
    more: Math.max(finalised, requeued, pruned) >= ROWS_PER_STATEMENT_MAX,
  };
}
