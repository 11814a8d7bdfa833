import { type RawBuilder, sql } from 'kysely';
import type { Database } from '../db/connect.ts';
import { rfc3339 } from '../db/sql.ts';
import { checkInput, jsonOf } from '../queue/check-enqueue.ts';
import type { Outcome } from '../queue/details.ts';
import { successors } from '../queue/follow-up.ts';
import { tellOf } from '../queue/items.ts';
import { backoff, isLastAttempt } from '../queue/retry.ts';
import type { QueueSettings } from '../queue/settings.ts';
import { topicsOf } from '../queue/topics.ts';
import { messageOf } from './error-message.ts';
import { isOwned, type Lease, LeaseError, leaseLost } from './lease.ts';

export type Settled = {
  readonly state: 'queued' | 'stopped';
  /** Why it stopped; null while it is queued. `failed` is set aside. */
  readonly reason: 'worker' | 'cancelled' | 'failed' | null;
  /** The instant before which it is not claimed again. */
  readonly nextAttemptAt: string | null;
  /** The same as a time from now, by the database's clock: for a timer. */
  readonly retryInMs: number | null;
  /** Whom the item, queued again, or its successor is for. In a caller's transaction they are told by its commit. */
  readonly topics: readonly string[];
};

/**
 * Ends the item as done, with the proof. In the caller's transaction it is done exactly when that commits. `unlessCancelled`: loses
 * to a request to cancel that was there first. `result`: any JSON value of at most 256 KiB, kept with the item. Refuses: invalid_request. Throws LeaseError lease_lost;
 * cancelled.
 */
export async function complete(
  database: Database,
  lease: Lease,
  { unlessCancelled = false, result }: { readonly unlessCancelled?: boolean; readonly result?: unknown } = {},
): Promise<Settled> {
  if (result !== undefined) checkInput('result', result);
  const settled = await settle(database, lease, {
    reason: sql`case when ${unlessCancelled} and w.cancel_requested_at is not null then 'refused' else 'worker' end`,
    outcome: 'succeeded',
    ...(result === undefined ? {} : { result: jsonOf('result', result) }),
  });
  if (settled !== 'refused') return settled;
  throw new LeaseError('cancelled', `item ${lease.seq} was asked to end: it is not completed`);
}

/**
 * Gives the item back, due at once, its attempt unspent. One that was asked to end is stopped instead, as `cancelled`. Throws
 * LeaseError lease_lost.
 */
export const requeue = async (database: Database, lease: Lease): Promise<Settled> =>
  neverRefused(await settle(database, lease, { reason: cancelledOr(sql`null`), outcome: null }));

/**
 * The attempt failed: queued again for later, exponentially and with jitter (half to all of 1 s, 2 s, 4 s … one day), or, at its last
 * attempt or where it is final, stopped as `failed` with its error kept. One that was asked to end is stopped as `cancelled`. Throws
 * LeaseError lease_lost.
 */
export const fail = async (
  database: Database,
  lease: Lease,
  error: unknown,
  { maxAttempts, isFinal = false }: Pick<QueueSettings, 'maxAttempts'> & { readonly isFinal?: boolean },
): Promise<Settled> =>
  neverRefused(
    await settle(database, lease, {
      reason: cancelledOr(sql`case when ${isFinal} or ${isLastAttempt(database.names, maxAttempts)} then 'failed' end`),
      outcome: 'failed',
      failure: messageOf(error),
    }),
  );

const cancelledOr = (other: RawBuilder<unknown>) =>
  sql`case when w.cancel_requested_at is not null then 'cancelled' else ${other} end`;

function neverRefused(settled: Settled | 'refused'): Settled {
  if (settled === 'refused') throw new Error('refused without a rule for it');
  return settled;
}

type Settling = {
  /** Why it stops; null queues it again; `refused` changes nothing. */
  readonly reason: RawBuilder<unknown>;
  /** What is said of it if it stops. */
  readonly outcome: Outcome | null;
  /** The attempt is spent on it. */
  readonly failure?: string;
  readonly result?: string;
};

async function settle(
  { names, rows, channel, isTransaction }: Database,
  lease: Lease,
  { reason, outcome, failure, result }: Settling,
): Promise<Settled | 'refused'> {
  const isFailed = failure !== undefined;
  const [row] = await rows(sql<Row>`
    with current as materialized (
      select w.seq, ${reason} as reason from ${names.workItems} w where ${isOwned(lease)} for no key update
    ), changed as (
      update ${names.workItems} w
      set state = case when c.reason is null then 'queued' else 'stopped' end,
        stop_reason = c.reason, outcome = case when c.reason is not null then ${outcome}::text end, stopped_at = case when c.reason is not null then clock_timestamp() end,
        stop_requested_at = coalesce(w.stop_requested_at, case when c.reason is not null then coalesce(w.cancel_requested_at, clock_timestamp()) end),
        lease_expires_at = null${
          isFailed
            ? sql`, last_error = ${failure},
        attempt = case when c.reason is null then w.attempt + 1 else w.attempt end,
        next_attempt_at = case when c.reason is null then clock_timestamp() + ${backoff} end`
            : sql``
        }
      from current c where w.seq = c.seq and c.reason is distinct from 'refused'
      returning w.seq, w.environment_id, w.session_id, w.kind, w.lane, w.state, w.stop_reason, w.next_attempt_at, w.follow_up
    ), freed as (
      select c.seq, c.environment_id, c.session_id, c.kind, c.follow_up from changed c where c.state = 'stopped'
    ), ${
      result === undefined
        ? sql``
        : sql`kept as (
      insert into ${names.workResults} (item_seq, result) select f.seq, ${result} from freed f
    ), `
    }${successors(names, 'freed')}, free as materialized (
      select s.lane, s.kind, s.environment_id from successor s
      union all select c.lane, c.kind, c.environment_id from changed c where c.state = 'queued'
    )
    select w.state, w.stop_reason as reason, ${rfc3339(sql`w.next_attempt_at`)} as "nextAttemptAt",
      ceil(extract(epoch from w.next_attempt_at - clock_timestamp()) * 1000)::bigint::text as "retryInMs",
      (select json_agg(f)::text from free f) as free,
      ${isTransaction ? tellOf(channel, 'free') : sql`null`} as told
    from current c left join changed w on w.seq = c.seq`);
  if (row === undefined) throw leaseLost(lease);
  const { state, reason: because, nextAttemptAt, free } = row;
  if (state === null) return 'refused';
  const retryInMs = row.retryInMs === null ? null : Math.max(0, Number(row.retryInMs));
  return { state, reason: because, nextAttemptAt, retryInMs, topics: topicsOf(free) };
}

type Row = Omit<Settled, 'state' | 'topics' | 'retryInMs'> & {
  readonly state: Settled['state'] | null;
  readonly retryInMs: string | null;
  readonly free: string | null;
};
