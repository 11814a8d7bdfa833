import { type RawBuilder, sql } from 'kysely';
import type { Database } from '../db/connect.ts';
import { rfc3339 } from '../db/sql.ts';
import { wasBegun } from '../queue/assignment.ts';
import { mintId } from '../queue/ids.ts';
import {
  handOutReached,
  type ItemRow,
  itemAnswer,
  itemSource,
  kindTopic,
  toWorkItem,
  type WorkItem,
  type WorkKind,
} from '../queue/items.ts';
import type { QueueSettings } from '../queue/settings.ts';
import { topicsOf } from '../queue/topics.ts';
import type { Candidate } from './candidates.ts';
import { isAsRead, lapsedItems, queuedItems, refusedItems } from './free-items.ts';
import { isOwned, type Lease } from './lease.ts';
import { endDoomed } from './reap.ts';

/** An item and the proof that it is held. */
export type Claimed = WorkItem & {
  readonly lease: Lease;
  /** As it was enqueued; null without one. */
  readonly input: unknown;
  /** From 1: one more than the failures so far. */
  readonly attempt: number;
  readonly maxAttempts: number;
  /**
   * Somebody who had begun it died, or let its lease lapse, in either lane: part of the work may be done. It stays so when it is given back
   * or fails after that. A reservation that no worker acknowledged was not begun.
   */
  readonly isReclaimed: boolean;
};

export type ClaimOptions = {
  /** 1 to 86400. */
  readonly ttlSeconds: number;
  /** 1 to 256 characters. */
  readonly workerId: string;
};

export type ClaimSettings = Pick<QueueSettings, 'maxHandOuts' | 'maxHandOvers' | 'maxAttempts'>;

/** Who loses its candidates to others, or finds them locked, looks past them; so often at most. */
const LOOKS_MAX = 64;

export type Taken = {
  readonly claimed: Claimed | null;
  /** Who waits for what follows the items that were ended in passing. */
  readonly topics: readonly string[];
};

/**
 * The next item of a kind: the first by priority, then by age, of what is queued and due and of what a dead claimant left
 * behind (design §1). What waited for an instant takes its place in line by the sweep; until then the few that have been due for longest do. `tool_exec` in self_hosted environments is left to polls, but where the environment has a
 * `fallback_after_ms`: what has been queued for that long since it was created, with no live reservation, changes lane for good, under a new id if
 * it was ever handed out. Nobody waits for a locked row: where all that was read is locked or changed, it is looked for what stands
 * behind. Lapsed items that were asked to end, or were taken over as often as they may be, are stopped in passing; what follows them is
 * looked for, too.
 */
export async function claimNext(
  database: Database,
  kind: WorkKind,
  options: ClaimOptions,
  settings: ClaimSettings,
): Promise<Taken> {
  const passed: string[] = [];
  const topics = new Set<string>();
  for (let look = 0; look < LOOKS_MAX; look++) {
    const only = sql`w.kind = ${kind} and w.seq <> all(${passed}::text[]::bigint[])`;
    const sorts = [queuedItems(database.names, only), lapsedItems(database.names, only, settings)];
    if (kind === 'tool_exec') sorts.push(refusedItems(database.names, only, settings));
    const taken = await take(database, sorts, options, settings, only);
    for (const topic of taken.topics) topics.add(topic);
    const isFollowed = taken.topics.includes(kindTopic(kind));
    if (taken.claimed !== null || (taken.passed.length === 0 && !isFollowed)) {
      return { claimed: taken.claimed, topics: [...topics] };
    }
    passed.push(...taken.passed);
  }
  return { claimed: null, topics: [...topics] };
}

/** That candidate, unless it was taken, changed or ended since it was read: compare and set. */
export const claimCandidate = (
  database: Database,
  { seq, handOut }: Candidate,
  options: ClaimOptions,
  settings: ClaimSettings,
) => {
  const only = sql`w.seq = ${seq}::bigint and w.hand_out_count = ${handOut}`;
  return take(
    database,
    [queuedItems(database.names, only), refusedItems(database.names, only, settings)],
    options,
    settings,
  );
};

/**
 * What that lease held: from that very owner and that very instant, and only if it is lapsed still. Ended instead where it is
 * not to be run again.
 */
export const reclaim = (database: Database, lease: Lease, options: ClaimOptions, settings: ClaimSettings) =>
  take(database, [lapsedItems(database.names, isOwned(lease), settings)], options, settings, isOwned(lease));

/** `lapsed` tells which of the lapsed items are looked at for what is to be ended; undefined: none. */
async function take(
  { names, rows }: Database,
  sorts: readonly RawBuilder<unknown>[],
  { ttlSeconds, workerId }: ClaimOptions,
  settings: ClaimSettings,
  lapsed?: RawBuilder<unknown>,
): Promise<Taken & { readonly passed: readonly string[] }> {
  const { workItems, workInputs, handOuts } = names;
  const askedAtMs = performance.now();
  const found = await rows(sql<Row>`
    with candidate as materialized (
      ${sql.join(sorts, sql` union all `)}
    ), taken as materialized (
      select w.* from (select c.* from candidate c order by c.priority desc, c.seq) c cross join lateral (
        select w.seq, w.id, w.environment_id, w.lane, w.state, w.worker_id, w.sessions_token_hash, w.handed_out_at,
          coalesce(w.lapsed_state, w.state) as lapsed_state, ${handOutReached('w')},
          coalesce(w.lease_expires_at, w.lapsed_at) as lapsed_at
        from ${workItems} w where ${isAsRead} for update skip locked
      ) w
      order by c.priority desc, c.seq limit 1
    ), superseded as (
      insert into ${handOuts} (work_id, item_seq, environment_id, worker_id, sessions_token_hash, handed_out_at,
        acknowledged_at, started_at, last_heartbeat, lapsed_at, reason)
      select t.id, t.seq, t.environment_id, t.worker_id, t.sessions_token_hash, t.handed_out_at,
        t.acknowledged_at, t.started_at, t.last_heartbeat, t.lapsed_at,
        case t.lapsed_state when 'queued' then 'reservation_lapsed' when 'starting' then 'startup_lease_lapsed'
          else 'lease_lapsed' end
      from taken t where t.lane = 'wire' and t.handed_out_at is not null
    ), claimed as (
      update ${workItems} w
      set id = case when t.lane = 'wire' and t.handed_out_at is not null then ${mintId('work')} else w.id end,
        lane = 'process', state = 'active', worker_id = ${workerId}, sessions_token_hash = null,
        handed_out_at = clock_timestamp(), hand_out_count = w.hand_out_count + 1,
        hand_over_count = case t.state when 'active' then w.hand_over_count + 1 else w.hand_over_count end,
        lease_expires_at = clock_timestamp() + ${ttlSeconds} * interval '1 second', lease_ttl_seconds = ${ttlSeconds},
        acknowledged_at = clock_timestamp(), started_at = clock_timestamp(), last_heartbeat = null, replaced_heartbeat = null,
        next_attempt_at = null, is_last_hand_out = false, lapsed_state = null, lapsed_at = null,
        lapsed_acknowledged_at = null, lapsed_started_at = null, lapsed_heartbeat = null
      from taken t where w.seq = t.seq
      returning ${itemSource('w')}, w.worker_id, w.hand_out_count, w.lease_expires_at, w.attempt, w.max_attempts,
        ${wasBegun(names, sql`w`)} or (t.lane = 'wire' and t.lapsed_state <> 'queued') as is_reclaimed
    )${lapsed === undefined ? sql`` : sql`, ${endDoomed(names, settings, lapsed)}`}
    select ${itemAnswer('c')}, c.worker_id as "workerId", c.hand_out_count as "handOut",
      ${rfc3339(sql`c.lease_expires_at`)} as "expiresAt", c.attempt,
      coalesce(c.max_attempts, (select e.max_attempts from ${names.environments} e where e.id = c.environment_id)) as "maxAttempts",
      c.is_reclaimed as "isReclaimed", i.input,
      ${lapsed === undefined ? sql`null` : sql`(select json_agg(s)::text from successor s)`} as successors,
      case when c.seq is null then (select json_agg(p.seq::text)::text from candidate p) end as passed
    from (select 1) one left join claimed c on true left join ${workInputs} i on i.item_seq = c.seq`);
  const [row] = found;
  return {
    claimed:
      row === undefined || row.id === null
        ? null
        : toClaimed({ ...row, id: row.id }, settings, { askedAtMs, ttlSeconds }),
    topics: topicsOf(row?.successors ?? null),
    passed: JSON.parse(row?.passed ?? '[]'),
  };
}

type Row = Omit<ItemRow, 'id'> & {
  readonly id: string | null;
  readonly workerId: string;
  readonly handOut: number;
  readonly expiresAt: string;
  readonly attempt: number;
  readonly maxAttempts: number | null;
  readonly isReclaimed: boolean;
  readonly input: string | null;
  readonly successors: string | null;
  /** What was read and could not be had, if nothing could. */
  readonly passed: string | null;
};

const toClaimed = (
  row: Row & { id: string },
  { maxAttempts }: ClaimSettings,
  asked: Pick<Lease, 'askedAtMs' | 'ttlSeconds'>,
): Claimed =>
  Object.freeze({
    ...toWorkItem(row),
    lease: Object.freeze({
      seq: row.seq,
      workerId: row.workerId,
      handOut: row.handOut,
      expiresAt: row.expiresAt,
      ...asked,
    }),
    input: row.input === null ? null : JSON.parse(row.input),
    attempt: row.attempt,
    maxAttempts: row.maxAttempts ?? maxAttempts,
    isReclaimed: row.isReclaimed,
  });
