import { sql } from 'kysely';
import type { Database } from '../db/connect.ts';
import { type Extent, extentOf, fixed, givenLater } from '../db/sql.ts';
import { environmentNotFound } from './errors.ts';
import { successors } from './follow-up.ts';
import { hashSecret, mintId, mintSecret } from './ids.ts';
import {
  handOutReached,
  type ItemRow,
  isQueuedIn,
  itemAnswer,
  itemSource,
  standsIn,
  toWorkItem,
  type WorkItem,
} from './items.ts';
import { sessionsToken } from './sessions-token.ts';
import type { QueueSettings } from './settings.ts';

/** Who is ready to take an item, and for how long it is then reserved; null: as the environment says. */
export type Taker = { readonly workerId: string | null; readonly reclaimOlderThanMs: number | null };

/** One item given to one taker. `sessionsToken` exists only here: the row keeps its hash (contract §6). */
export type HandOut = { readonly item: WorkItem; readonly sessionsToken: string };

export type Look = {
  /** Taker n's at index n, null when there was nothing for it. */
  readonly handOuts: readonly (HandOut | null)[];
  /** Items that were stopped as exhausted in place of being handed out: look again before saying that there is nothing. */
  readonly setAside: number;
  /** An item that was stopped so had a follow-up: it is for all who wait, also elsewhere. */
  readonly isFollowed: boolean;
  /**
   * Of a deep look that found less than was asked for: in how many ms the first of what was held when it began can be taken, if it is not renewed; not above 0 where something could be
   * taken, be it that this look did. Null when nothing was held.
   */
  readonly lapsesInMs: number | null;
};

export type LookOptions = Pick<QueueSettings, 'reclaimOlderThanMs' | 'maxHandOuts'> & {
  /** Takes only what was created this long ago. */
  readonly minQueuedAgeMs: number;
  /** False: looks for no lapsed leases of what was acked, which reads all that is held. Default true. */
  readonly isDeep?: boolean;
};

/** At most this many abandoned `stopping` items are finalised by one poll (contract §4). */
export const FINALISED_PER_POLL_MAX = 50;

type Args = Pick<QueueSettings, 'reclaimOlderThanMs' | 'maxHandOuts'> & {
  readonly environmentId: string;
  readonly minQueuedAgeMs: number;
  readonly isDeep: boolean;
  readonly takers: readonly (Taker & { readonly freshId: string; readonly tokenHash: string })[];
};
type Row = ItemRow & {
  found: boolean;
  setAside: number;
  isFollowed: boolean;
  lapsesInMs: number | null;
  slot: number | null;
};

const statement = fixed<Args, Row, `${'any' | 'old'} ${Extent}`>((value, names, shape) => {
  const [age, extent] = shape.split(' ') as ['any' | 'old', Extent];
  const { workItems, handOuts, environments } = names;
  const environmentId = value((of) => of.environmentId);
  const minQueuedAge = sql`${value((of) => of.minQueuedAgeMs)} * interval '1 millisecond'`;
  const isOldEnough = age === 'any' ? sql`` : sql`and w.created_at <= clock_timestamp() - ${minQueuedAge}`;
  const takeableAt =
    age === 'any' ? sql`w.lease_expires_at` : sql`greatest(w.lease_expires_at, w.created_at + ${minQueuedAge})`;
  const isDeep = sql`${value((of) => of.isDeep)}::boolean`;
  const isSpent = sql`coalesce(w.hand_out_count
    >= coalesce(w.max_hand_outs, (select p.max_hand_outs from place p), ${value((of) => of.maxHandOuts)}::integer), false) as is_spent`;
  return sql`
    with place as materialized (
      select e.paused_at is not null as is_paused, e.max_hand_outs, e.reclaim_older_than_ms
      from ${environments} e where e.id = ${environmentId}
    ), taker as materialized (
      select t.fresh_id, t.token_hash, t.worker_id, t.reservation_ms, t.slot
      from ${givenLater(
        value,
        ({ takers }) => takers,
        {
          fresh_id: ['text', ({ freshId }) => freshId],
          token_hash: ['text', ({ tokenHash }) => tokenHash],
          worker_id: ['text', ({ workerId }) => workerId],
          reservation_ms: ['integer', ({ reclaimOlderThanMs }) => reclaimOlderThanMs],
        },
        extent,
      )}
    ), abandoned as materialized (
      select w.seq from ${workItems} w
      where ${standsIn(environmentId)} and w.state = 'stopping'
        and (w.lease_expires_at is null or w.lease_expires_at <= clock_timestamp())
      order by w.seq limit ${sql.lit(FINALISED_PER_POLL_MAX)} for update skip locked
    ), finalised as (
      update ${workItems} w
      set state = 'stopped', stopped_at = clock_timestamp(), stop_reason = 'abandoned',
        lapsed_at = coalesce(w.lease_expires_at, w.lapsed_at), lease_expires_at = null
      from abandoned a where w.seq = a.seq
    ), free as materialized (
      select w.seq, w.id, w.priority, w.worker_id, w.sessions_token_hash, w.handed_out_at,
        coalesce(w.lapsed_state, w.state) as lapsed_state, ${handOutReached('w')}, coalesce(w.lease_expires_at, w.lapsed_at) as lapsed_at,
        ${isSpent}
      from ${workItems} w
      where ${isQueuedIn(environmentId)}
        and (w.lease_expires_at is null or w.lease_expires_at <= clock_timestamp())
        and (w.not_before is null or w.not_before <= clock_timestamp())
        and not (select p.is_paused from place p) ${isOldEnough}
      order by w.priority desc, w.seq
      limit (select count(*) from taker) for update skip locked
    ), lapsed as materialized (
      select w.seq, w.id, w.priority, w.worker_id, w.sessions_token_hash, w.handed_out_at,
        case when w.lapsed_state = 'active' then 'active' else w.state end as lapsed_state,
        ${handOutReached('w')}, w.lease_expires_at as lapsed_at, ${isSpent}
      from ${workItems} w
      where ${standsIn(environmentId)} and w.state in ('starting', 'active')
        and w.lease_expires_at <= clock_timestamp()
        and not (select p.is_paused from place p) ${isOldEnough} and ${isDeep}
      order by w.seq
      limit (select count(*) from taker) - (select count(*) from free) for update skip locked
    ), chosen as materialized (
      select c.seq, c.id, c.worker_id, c.sessions_token_hash, c.handed_out_at, c.lapsed_state,
        c.acknowledged_at, c.started_at, c.last_heartbeat, c.lapsed_at, c.is_spent,
        case when not c.is_spent then row_number() over (partition by c.is_spent order by c.turn, c.priority desc, c.seq) end as slot
      from (
        select f.seq, f.id, f.priority, f.worker_id, f.sessions_token_hash, f.handed_out_at, f.lapsed_state,
          f.acknowledged_at, f.started_at, f.last_heartbeat, f.lapsed_at, f.is_spent, 1 as turn
        from free f
        union all
        select l.seq, l.id, l.priority, l.worker_id, l.sessions_token_hash, l.handed_out_at, l.lapsed_state,
          l.acknowledged_at, l.started_at, l.last_heartbeat, l.lapsed_at, l.is_spent, 2 as turn
        from lapsed l
      ) c
    ), given_to as materialized (
      select c.seq, c.handed_out_at, t.fresh_id, t.token_hash, t.worker_id, t.reservation_ms, t.slot
      from chosen c full join taker t on t.slot = c.slot
    ), exhausted as (
      update ${workItems} w
      set state = 'stopped', stopped_at = clock_timestamp(), stop_reason = 'exhausted', lapsed_at = c.lapsed_at,
        lease_expires_at = null
      from chosen c where w.seq = c.seq and c.is_spent
      returning w.seq, w.environment_id, w.session_id, w.kind, w.lane, w.follow_up
    ), ${successors(names, 'exhausted')}, superseded as (
      insert into ${handOuts} (work_id, item_seq, environment_id, worker_id, sessions_token_hash, handed_out_at,
        acknowledged_at, started_at, last_heartbeat, lapsed_at, reason)
      select c.id, c.seq, ${environmentId}, c.worker_id, c.sessions_token_hash, c.handed_out_at,
        c.acknowledged_at, c.started_at, c.last_heartbeat, c.lapsed_at,
        case c.lapsed_state when 'queued' then 'reservation_lapsed' when 'starting' then 'startup_lease_lapsed'
          else 'lease_lapsed' end
      from chosen c where c.handed_out_at is not null and not c.is_spent
    ), handed_out as (
      update ${workItems} w
      set id = case when g.handed_out_at is null then w.id else g.fresh_id end,
        state = 'queued', worker_id = g.worker_id, sessions_token_hash = g.token_hash,
        handed_out_at = clock_timestamp(), hand_out_count = w.hand_out_count + 1, lapsed_state = null,
        is_last_hand_out = coalesce(w.hand_out_count + 1
          >= coalesce(w.max_hand_outs, (select p.max_hand_outs from place p), ${value((of) => of.maxHandOuts)}::integer), false),
        lease_expires_at = clock_timestamp() + coalesce(g.reservation_ms, (select p.reclaim_older_than_ms from place p),
          ${value((of) => of.reclaimOlderThanMs)}::integer) * interval '1 millisecond', lease_ttl_seconds = null,
        acknowledged_at = null, started_at = null, last_heartbeat = null, replaced_heartbeat = null,
        lapsed_at = null, lapsed_acknowledged_at = null, lapsed_started_at = null, lapsed_heartbeat = null
      from given_to g where w.seq = g.seq and g.slot is not null
      returning ${itemSource('w')}, g.slot
    )
    select exists (select from place) as found, (select count(*) from exhausted)::integer as "setAside",
      exists (select from successor) as "isFollowed", (
        select extract(epoch from min(${takeableAt}) - clock_timestamp())::float8 * 1000 from ${workItems} w
        where ${standsIn(environmentId)} and w.state in ('starting', 'active') and ${isDeep}
          and (select count(*) from free) + (select count(*) from lapsed) < (select count(*) from taker)
      ) as "lapsesInMs",
      h.slot::integer as slot, ${itemAnswer('h')}
    from (select 1) one left join handed_out h on true`;
});

/**
 * One look for a whole line of takers, in order. Hands out what is queued and free, then what has lapsed; finalises abandoned `stopping` items also when nothing is
 * handed out. A re-hand-out mints a new id and remembers the old one; an item that was handed out as often as it may be is stopped instead. Where the environment is
 * paused nothing is handed out. Nobody waits for a locked row.
 * Refuses: environment_not_found.
 */
export async function poll(
  database: Database,
  environmentId: string,
  takers: readonly Taker[],
  { reclaimOlderThanMs, maxHandOuts, minQueuedAgeMs, isDeep = true }: LookOptions,
): Promise<Look> {
  const secrets = takers.map(() => mintSecret());
  const args = {
    ...{ environmentId, minQueuedAgeMs, isDeep, reclaimOlderThanMs, maxHandOuts },
    takers: takers.map((taker, n) => ({ ...taker, freshId: mintId('work'), tokenHash: hashSecret(secrets[n] ?? '') })),
  };
  const rows = await database.rows(
    statement(database.names, args, `${minQueuedAgeMs === 0 ? 'any' : 'old'} ${extentOf(takers)}`),
  );
  if (!rows[0]?.found) throw environmentNotFound(environmentId);
  const found: (HandOut | null)[] = takers.map(() => null);
  for (const row of rows) {
    if (row.slot === null) continue;
    found[row.slot - 1] = {
      item: toWorkItem(row),
      sessionsToken: sessionsToken(row.id, secrets[row.slot - 1] ?? ''),
    };
  }
  const { setAside, isFollowed, lapsesInMs } = rows[0];
  return { handOuts: found, setAside, isFollowed, lapsesInMs };
}
