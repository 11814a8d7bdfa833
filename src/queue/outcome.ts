import { sql } from 'kysely';
import type { Database } from '../db/connect.ts';
import { checkInput, jsonOf } from './check-enqueue.ts';
import type { Outcome } from './details.ts';
import { QueueError } from './errors.ts';
import { successors } from './follow-up.ts';
import {
  givenBack,
  handOutSource,
  type HolderRef,
  type HolderRow,
  holderAnswer,
  isLive,
  isPresent,
  lookTwice,
  refused,
} from './holder.ts';
import { checkRef } from './items.ts';
import { checkText, LIMITS } from './limits.ts';
import { backoff, isLastAttempt } from './retry.ts';
import type { QueueSettings } from './settings.ts';

export type Report = {
  readonly status: Outcome;
  /** Of what succeeded: any JSON value of at most 256 KiB and 1,000 levels; undefined: none. */
  readonly result?: unknown;
  /** Of what failed: at most 2,000 characters. */
  readonly error?: string | undefined;
  /** Of what failed: not to be tried again. */
  readonly isFinal?: boolean | undefined;
};

export type ReportRequest = HolderRef & Report & { readonly reason: 'worker' | 'operator' };

export type Reported = {
  readonly status: Outcome;
  /** `queued`: it is tried again later. */
  readonly state: 'queued' | 'stopped';
  /** True when its follow-up was enqueued with it: there is work to be offered. */
  readonly isFollowed: boolean;
};

/**
 * What became of an item, by who holds it under a live lease. Succeeded it is stopped, with its result. Failed it spends an attempt: queued again
 * for later under a new id, as long apart as in the process lane, or, at its last attempt or where it is final, set aside as `failed`. The hand-out does not count
 * against its cap of hand-outs either way. An item that winds down ends with what is said of it, and is not tried again; why it was to end stays the
 * reason. Whatever frees its slot is followed by its follow-up. The same again is answered the same.
 * Refuses: invalid_request; not_found; precondition_failed when the lease has lapsed; conflict when the item has ended otherwise, or
 * something else was said of this hand-out.
 */
export async function reportOutcome(
  database: Database,
  request: ReportRequest,
  { maxAttempts }: Pick<QueueSettings, 'maxAttempts'>,
): Promise<Reported> {
  checkRef(request);
  checkReport(request);
  const { status, error = null, isFinal = false, reason } = request;
  const result = request.result === undefined ? null : jsonOf('result', request.result);
  const { names } = database;
  const isFailed = status === 'failed';
  const row = await lookTwice(() =>
    database.rows(sql<HolderRow & { isFollowed: 'true' | 'false' }>`
    with current as materialized (
      select w.seq, w.state, w.session_id, w.kind, w.lane, w.follow_up, ${handOutSource},
        case
          when w.outcome = ${status}
            and (select r.result from ${names.workResults} r where r.item_seq = w.seq) is not distinct from ${result}::text then 'repeated'
          when w.state = 'stopped' then 'over'
          when not ${isLive} then 'lapsed'
          when not ${isFailed} or ${isFinal} or w.state = 'stopping' or ${isLastAttempt(names, maxAttempts)} then 'stopped'
          else 'queued'
        end as decision
      from ${names.workItems} w where ${isPresent(request)} for update
    ), ${givenBack(
      names,
      'failed',
      sql`attempt = w.attempt + 1, last_error = ${error}, not_before = clock_timestamp() + ${backoff}`,
    )}, ended as (
      update ${names.workItems} w
      set state = 'stopped', outcome = ${status}, stopped_at = clock_timestamp(), lease_expires_at = null,
        stop_requested_at = coalesce(w.stop_requested_at, clock_timestamp()),
        stop_reason = coalesce(w.stop_reason, ${isFailed ? 'failed' : reason}),
        last_error = case when ${isFailed} then ${error} else w.last_error end
      from current c where w.seq = c.seq and c.decision = 'stopped'
      returning w.seq, c.state, w.environment_id, w.session_id, w.kind, w.lane, w.follow_up
    ), kept as (
      insert into ${names.workResults} (item_seq, result) select e.seq, ${result} from ended e where ${result}::text is not null
    ), freed as (
      select e.seq, e.environment_id, e.session_id, e.kind, e.lane, e.follow_up from ended e where e.state <> 'stopping'
    ), ${successors(names, 'freed')}
    select (exists (select from successor))::text as "isFollowed", ${holderAnswer(names, request)}`),
  );
  if (row.decision === 'queued') return { status, state: 'queued', isFollowed: false };
  if (row.decision === 'stopped') return { status, state: 'stopped', isFollowed: row.isFollowed === 'true' };
  if (row.decision === 'repeated') return { status, state: 'stopped', isFollowed: false };
  if (row.ended === 'failed' && isFailed) return { status, state: 'queued', isFollowed: false };
  if (row.ended === 'failed') throw new QueueError('conflict', `this hand-out of work item ${request.id} has failed`);
  if (row.decision === 'over') throw new QueueError('conflict', `work item ${request.id} is already stopped`);
  throw refused(request, row);
}

/** Refuses: invalid_request. */
function checkReport({ status, result, error, isFinal }: Report): void {
  const alien = status === 'failed' ? { result } : { error, final: isFinal };
  for (const [name, value] of Object.entries(alien)) {
    if (value === undefined) continue;
    throw new QueueError('invalid_request', `${name} must not be given with status ${status}`);
  }
  if (error !== undefined) checkText('error', error, LIMITS.errorCharacters);
  if (result !== undefined) checkInput('result', result);
}
