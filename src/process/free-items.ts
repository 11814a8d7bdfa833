import { type RawBuilder, sql } from 'kysely';
import type { TableNames } from '../db/sql.ts';
import { isQueuedIn } from '../queue/items.ts';
import type { QueueSettings } from '../queue/settings.ts';

/** Of each sort so many are read; a claim takes the first that nobody has locked. */
const CANDIDATES_MAX = 16;
/** Of what has lapsed all are read, since no index may name a lease; so many go on. */
const LAPSED_MAX = CANDIDATES_MAX;

export type CapSettings = Pick<QueueSettings, 'maxHandOuts' | 'maxHandOvers'>;

/** What a claim compares when it has the row: nobody took, renewed, gave back or ended the item since it was read. */
const COLUMNS = ['seq', 'priority', 'state', 'lane', 'hand_out_count', 'lease_expires_at'];
const columns = sql.join(COLUMNS.map((name) => sql.ref(`w.${name}`)));

/** Still as the candidate `c` was read, and nobody asked for its end. */
export const isAsRead = sql`w.seq = c.seq and w.state = c.state and w.lane = c.lane and w.hand_out_count = c.hand_out_count
  and w.lease_expires_at is not distinct from c.lease_expires_at and w.cancel_requested_at is null`;

/** The lease of a claimed item that has run out. */
export const isLapsed = sql`w.lane = 'process' and w.state = 'active' and w.lease_expires_at <= clock_timestamp()`;

/**
 * Why a lapsed item is not to be run again; null otherwise. A cap of hand-outs counts all that did not end well: those to workers that lapsed,
 * before the item changed lane, its first claimant, and those that took over from a dead one.
 */
export const doom = (
  { environments, handOuts }: TableNames,
  { maxHandOvers }: CapSettings,
): RawBuilder<string | null> =>
  sql`case when w.cancel_requested_at is not null then 'cancelled'
    when coalesce(
      w.hand_over_count + 1 + (select count(*) from ${handOuts} h where h.item_seq = w.seq and h.reason not in ('released', 'failed'))
        >= coalesce(w.max_hand_outs, (select e.max_hand_outs from ${environments} e where e.id = w.environment_id)),
      w.hand_over_count >= ${maxHandOvers}::integer) then 'exhausted' end`;

/**
 * Queued and due. What waited for an instant is found by that instant, the rest by its place in line: where more than sixteen have
 * become due and wait, those that have been due longest come first, whatever their priority.
 */
export const queuedItems = ({ workItems }: TableNames, only: RawBuilder<unknown>): RawBuilder<unknown> => sql`(
        select ${columns} from ${workItems} w
        where w.lane = 'process' and w.state = 'queued' and w.next_attempt_at is null
          and (w.not_before is null or w.not_before <= clock_timestamp()) and ${only}
        order by w.priority desc, w.seq limit ${sql.lit(CANDIDATES_MAX)}
      ) union all (
        select ${columns} from ${workItems} w
        where w.lane = 'process' and w.state = 'queued' and w.next_attempt_at <= statement_timestamp() and ${only}
        order by w.next_attempt_at limit ${sql.lit(CANDIDATES_MAX)}
      )`;

/** Left behind by a dead claimant, and to be run again. */
export const lapsedItems = (
  names: TableNames,
  only: RawBuilder<unknown>,
  caps: CapSettings,
): RawBuilder<unknown> => sql`(
        select ${columns} from ${names.workItems} w
        where ${isLapsed} and ${doom(names, caps)} is null and ${only}
        order by w.priority desc, w.seq limit ${sql.lit(LAPSED_MAX)}
      )`;

/**
 * First refusal is over (see `claimNext`): the oldest of each environment, as what a poll may take, and not for the last time. Of what
 * was for later, those that have been due for longest: what still is would be read past by claims of all environments.
 */
export const refusedItems = (
  { workItems, environments }: TableNames,
  only: RawBuilder<unknown>,
  { maxHandOuts }: CapSettings,
): RawBuilder<unknown> => {
  const oldest = (isDue: RawBuilder<unknown>, age: RawBuilder<unknown>) => sql`(
            select ${columns} from ${workItems} w
            where ${isQueuedIn(sql`e.id`)} and ${isDue}
              and w.created_at <= statement_timestamp() - e.fallback_after_ms * interval '1 millisecond'
              and (w.lease_expires_at is null or w.lease_expires_at <= clock_timestamp())
              and coalesce(w.hand_out_count < coalesce(w.max_hand_outs, e.max_hand_outs, ${maxHandOuts}::integer), true) and ${only}
            order by ${age} limit ${sql.lit(CANDIDATES_MAX)}
          )`;
  return sql`(
        select f.* from ${environments} e cross join lateral (
          ${oldest(sql`w.not_before is null`, sql`w.created_at`)}
          union all
          ${oldest(sql`w.not_before <= statement_timestamp()`, sql`w.not_before`)}
        ) f
        where e.fallback_after_ms is not null and e.paused_at is null
      )`;
};
