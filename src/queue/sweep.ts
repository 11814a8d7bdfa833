import { sql } from 'kysely';
import type { Database } from '../db/connect.ts';
import { successors } from './follow-up.ts';
import type { QueueSettings } from './settings.ts';
import { topicsOf } from './topics.ts';

/** A lapsed item is left this long to its holder's late heartbeat, and to polls, before the sweep takes it (contract §4). */
export const SWEEP_PATIENCE_SECONDS = 2;
const ROWS_PER_STATEMENT_MAX = 500;

export type Swept = {
  readonly finalised: number;
  readonly requeued: number;
  /** Stopped as exhausted. */
  readonly setAside: number;
  /** Whom the items that became free are for. */
  readonly topics: readonly string[];
  /** True when a bound was reached: there is more, sweep again. */
  readonly more: boolean;
};

/**
 * The background's first statement: finalises abandoned `stopping` items, puts lapsed `starting` and `active` ones back to
 * queued, or sets aside what was handed out as often as it may be. Replicas take turns by an advisory lock; bounded, and skips what
 * others hold.
 */
export async function sweep(database: Database, { maxHandOuts }: Pick<QueueSettings, 'maxHandOuts'>): Promise<Swept> {
  const { workItems, environments } = database.names;
  const isSpent = sql`coalesce(w.hand_out_count >= coalesce(w.max_hand_outs, e.max_hand_outs, ${maxHandOuts}::integer), false)`;
  const [row] = await database.rows(sql<{
    finalised: number;
    requeued: number;
    setAside: number;
    most: number;
    free: string | null;
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
      set state = 'stopped', stopped_at = clock_timestamp(), stop_reason = 'abandoned',
        lapsed_at = coalesce(w.lease_expires_at, w.lapsed_at), lease_expires_at = null
      from abandoned a where w.seq = a.seq
      returning w.seq
    ), lapsed as materialized (
      select w.seq, ${isSpent} as is_spent from ${workItems} w join ${environments} e on e.id = w.environment_id, turn
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
      from lapsed l where w.seq = l.seq and not l.is_spent
      returning w.environment_id, w.kind, w.lane
    ), unacked as materialized (
      select w.seq from ${workItems} w join ${environments} e on e.id = w.environment_id, turn
      where turn.mine and w.lane = 'wire' and w.state = 'queued' and w.is_last_hand_out and ${isSpent}
        and (w.lease_expires_at is null
          or w.lease_expires_at <= clock_timestamp() - ${sql.lit(SWEEP_PATIENCE_SECONDS)} * interval '1 second')
      order by w.seq limit ${sql.lit(ROWS_PER_STATEMENT_MAX)} for update of w skip locked
    ), exhausted as (
      update ${workItems} w
      set state = 'stopped', stopped_at = clock_timestamp(), stop_reason = 'exhausted',
        lapsed_at = coalesce(w.lease_expires_at, w.lapsed_at), lease_expires_at = null
      from (select l.seq from lapsed l where l.is_spent union all select u.seq from unacked u) x where w.seq = x.seq
      returning w.seq, w.environment_id, w.session_id, w.kind, w.follow_up
    ), ${successors(database.names, 'exhausted')}
    select (select count(*) from finalised)::integer as finalised, (select count(*) from requeued)::integer as requeued,
      (select count(*) from exhausted)::integer as "setAside",
      greatest((select count(*) from abandoned), (select count(*) from lapsed), (select count(*) from unacked))::integer as most,
      (select json_agg(f)::text from (
        select r.environment_id, r.kind, r.lane from requeued r union select s.environment_id, s.kind, s.lane from successor s
      ) f) as free
    from turn`); // read here, or a sweep that finds nothing would not take its turn
  const { finalised = 0, requeued = 0, setAside = 0, most = 0 } = row ?? {};
  return {
    finalised,
    requeued,
    setAside,
    topics: topicsOf(row?.free ?? null),
    more: most >= ROWS_PER_STATEMENT_MAX,
  };
}
