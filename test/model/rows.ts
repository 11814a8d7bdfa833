import assert from 'node:assert/strict';
import { type RawBuilder, sql } from 'kysely';
import { rfc3339 } from '../../src/db/sql.ts';
import type { FollowUp, Lane, NotBefore, Outcome, State, StopReason } from './model.ts';
import type { ModelItem } from './world.ts';

export type Row = {
  /** All of it, to see that it stays as it was. */
  whole: string;
  seq: string;
  id: string;
  state: State;
  stopReason: StopReason | null;
  outcome: Outcome | null;
  priority: number;
  metadata: string;
  maxHandOuts: number | null;
  handOutCount: number;
  notBefore: NotBefore;
  followUp: string | null;
  followUpNotBefore: NotBefore;
  requeuedFrom: string | null;
  lastHeartbeat: string | null;
  replaced: string | null;
  ttlSeconds: number | null;
  leaseSeconds: number | null;
  lane: Lane;
  attempt: number;
  maxAttempts: number | null;
  nextAttempt: NotBefore;
  handOvers: number;
  isCancelRequested: boolean;
  lastError: string | null;
  /** The whole of what a claimant must know. */
  workerId: string | null;
  expiresAt: string | null;
};

const notBefore = (instant: RawBuilder<unknown>) =>
  sql`case when ${instant} is null then 'none' when ${instant} <= clock_timestamp() then 'past' else 'future' end`;

/** Of `work_items w`. */
export const rowColumns = sql`w.seq::text, w.id, w.state, w.stop_reason as "stopReason", w.outcome, w.priority::integer, w.metadata::text,
  w.max_hand_outs as "maxHandOuts", w.hand_out_count as "handOutCount", ${notBefore(sql`w.not_before`)} as "notBefore",
  w.follow_up::text as "followUp", ${notBefore(sql`(w.follow_up ->> 'not_before')::timestamptz`)} as "followUpNotBefore",
  w.requeued_from as "requeuedFrom", ${rfc3339(sql`w.last_heartbeat`)} as "lastHeartbeat",
  ${rfc3339(sql`w.replaced_heartbeat`)} as replaced, w.lease_ttl_seconds as "ttlSeconds",
  extract(epoch from w.lease_expires_at - clock_timestamp())::float8 as "leaseSeconds", to_jsonb(w)::text as whole,
  w.lane, w.attempt, w.max_attempts as "maxAttempts", ${notBefore(sql`w.next_attempt_at`)} as "nextAttempt",
  w.hand_over_count as "handOvers", w.cancel_requested_at is not null as "isCancelRequested", w.last_error as "lastError",
  w.worker_id as "workerId", ${rfc3339(sql`w.lease_expires_at`)} as "expiresAt"`;

/** A lease set `n` seconds ahead may have this much less left when it is looked at; histories are far shorter. */
const SECONDS_PASSED_MAX = 20;

/** What the row must be, by the model. */
export function checkRow(item: ModelItem, row: Row): void {
  const { id, seq, state, stopReason, outcome, priority, metadata, maxHandOuts, handOutCount, notBefore } = item;
  const { followUp, requeuedFrom, lastHeartbeat, replaced, ttlSeconds, leaseSeconds: expected } = item;
  const { lane, attempt, maxAttempts, nextAttempt, handOvers, isCancelRequested, lastError, proof } = item;
  const { leaseSeconds, followUpNotBefore, whole: _, workerId, expiresAt, ...found } = row;
  assert.deepEqual(
    {
      ...found,
      metadata: JSON.parse(row.metadata),
      replaced: row.replaced ?? (row.lastHeartbeat && 'NO_HEARTBEAT'),
      followUp: row.followUp === null ? null : toFollowUp(JSON.parse(row.followUp), followUpNotBefore),
    },
    {
      ...{ id, seq, state, stopReason, outcome, priority, metadata, maxHandOuts, handOutCount, notBefore },
      ...{ followUp, requeuedFrom, lastHeartbeat, replaced, ttlSeconds },
      ...{ lane, attempt, maxAttempts, nextAttempt, handOvers, isCancelRequested, lastError },
    },
    `the row of ${item.name}`,
  );
  if (proof !== null) {
    const held = { seq, workerId, handOut: row.handOutCount, expiresAt };
    assert.deepEqual(held, proof, `who holds ${item.name}`);
  }
  const agrees =
    leaseSeconds === null || expected === null
      ? leaseSeconds === expected
      : leaseSeconds <= expected && leaseSeconds > expected - SECONDS_PASSED_MAX;
  assert(agrees, `the lease of ${item.name} is ${leaseSeconds} s, expected ${expected} s`);
}

type StoredFollowUp = Pick<FollowUp, 'id' | 'priority' | 'metadata'> & {
  readonly max_hand_outs: number | null;
  readonly max_attempts: number | null;
};

const toFollowUp = (stored: StoredFollowUp, notBefore: NotBefore): FollowUp => {
  const { id, priority, metadata, max_hand_outs: maxHandOuts, max_attempts: maxAttempts } = stored;
  return { id, priority, metadata, maxHandOuts, maxAttempts, notBefore };
};
