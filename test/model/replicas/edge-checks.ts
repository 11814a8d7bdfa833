import assert from 'node:assert/strict';
import type { Edge } from './edges.ts';
import { micros, type Row, type Version } from './log.ts';
import { MAX_ATTEMPTS, STARTUP_LEASE_SECONDS } from './replica.ts';

const SECOND = 1_000_000;
/** Two instants of one statement lie so far apart at most, also on a machine that does something else meanwhile. */
const STATEMENT_MAX = 10 * SECOND;
const SWEEP_PATIENCE = 2 * SECOND;

const hasLapsed = ({ lease_expires_at: lease }: Row, by: number, patience = 0): boolean =>
  lease !== null && micros(lease) + patience <= by;

const near = (one: string | null, other: string | null, seconds: number): boolean =>
  one !== null && other !== null && Math.abs(micros(one) - micros(other) - seconds * SECOND) < STATEMENT_MAX;

/** What must hold of an edge, whoever asked for it. `newest`: the greatest token that the item ever had. */
export function checkEdge(edge: Edge, { since, at, old, row }: Version, newest: number): void {
  if (old === null) {
    assert.deepEqual(
      [row.state, row.hand_out_count, row.lease_expires_at, row.attempt, row.outcome],
      ['queued', 0, null, 1, null],
      'what is new is on offer',
    );
    return;
  }
  const isFree = (by: number, patience = 0) =>
    (old.state === 'queued' && old.lease_expires_at === null) || hasLapsed(old, by, patience);
  const isHeld = old.lease_expires_at !== null && micros(old.lease_expires_at) > since;
  switch (edge) {
    case 'handed out':
      assert(
        old.not_before === null || micros(old.not_before) <= micros(row.handed_out_at ?? ''),
        'what waits for its time is not handed out before',
      );
      assert(isFree(micros(row.handed_out_at ?? '')), 'a lease is not taken over before it lapsed');
      assert.equal(
        row.id === old.id,
        old.handed_out_at === null,
        'the first hand-out keeps the id, each other mints one',
      );
      assert.equal(row.hand_out_count, old.hand_out_count + 1);
      assert.equal(row.last_heartbeat, null);
      return;
    case 'put back': {
      const isUnseen = row.handed_out_at === null;
      assert(old.lease_expires_at !== null && row.lease_expires_at === null, 'only what is reserved is put back');
      assert.equal(row.hand_out_count, isUnseen ? old.hand_out_count - 1 : old.hand_out_count);
      return;
    }
    case 'acked':
      assert(near(row.lease_expires_at, row.acknowledged_at, STARTUP_LEASE_SECONDS), 'the startup lease');
      return;
    case 'beat':
      assert(micros(row.last_heartbeat ?? '') > newest, 'the tokens of an item increase');
      assert.equal(row.replaced_heartbeat, old.last_heartbeat);
      assert(
        near(row.lease_expires_at, row.last_heartbeat, row.lease_ttl_seconds ?? 0),
        'the lease is as long as its TTL',
      );
      return;
    case 'follow-up kept':
      assert.equal(old.follow_up, null, 'the first follow-up is kept');
      return;
    case 'requeued':
      assert(isFree(at, SWEEP_PATIENCE), 'the sweep leaves what lapsed a moment ago to its holder');
      return;
    case 'finalised':
      assert(old.lease_expires_at === null || hasLapsed(old, at), 'who winds down has time for it');
      assert.equal(row.lease_expires_at, null);
      return;
    case 'released':
    case 'tried again':
      assert(isHeld, `what is ${edge} was held under a live lease, not under ${old.lease_expires_at}`);
      assert.equal(row.hand_out_count, old.hand_out_count - 1, `a hand-out that is ${edge} is not counted`);
      assert.equal(row.attempt, old.attempt + (edge === 'released' ? 0 : 1), 'attempts are counted by failures alone');
      assert.deepEqual(
        [row.state, row.worker_id, row.sessions_token_hash, row.lease_expires_at, row.last_heartbeat],
        ['queued', null, null, null, null],
        `what is ${edge} is as if never handed out`,
      );
      assert(!row.is_last_hand_out, `what is ${edge} is not spent by it`);
      assert(edge === 'released' || old.attempt < (old.max_attempts ?? MAX_ATTEMPTS), 'the last attempt was the last');
      return;
    case 'concluded':
      assert(isHeld, `what is concluded was held under a live lease, not under ${old.lease_expires_at}`);
      assert.deepEqual([old.outcome, old.result], [null, null], 'an outcome is said once');
      assert.equal(row.lease_expires_at, null, 'what is over has no lease');
      return;
    case 'exhausted':
      assert(isFree(at), 'what is held is not set aside');
      assert(
        old.max_hand_outs !== null && old.hand_out_count >= old.max_hand_outs,
        'it was handed out as often as it may be',
      );
      return;
    case 'cancelled':
      assert.deepEqual(
        [row.lease_expires_at, row.follow_up],
        [null, null],
        'what is cancelled has no lease, and no follow-up',
      );
      return;
    case 'stopped':
      assert.deepEqual([row.outcome, row.result], [null, null], 'who stops an item says nothing of its outcome');
      assert.equal(row.lease_expires_at, null, 'what is over has no lease');
      return;
    default:
  }
}
