import assert from 'node:assert/strict';
import type { WorkState } from '../../../src/queue/items.ts';
import { micros, type Row, type Version } from './log.ts';
import { STARTUP_LEASE_SECONDS } from './replica.ts';

/** What may become of a row, by the state table (contract §4). */
export type Edge =
  | 'enqueued'
  | 'handed out'
  | 'put back'
  | 'acked'
  | 'beat'
  | 'replayed'
  | 'stop asked'
  | 'stopped'
  | 'finalised'
  | 'exhausted'
  | 'requeued'
  | 'cancelled'
  | 'patched'
  | 'follow-up kept'
  | 'lapsed';

type Column = keyof Row | 'is_last_hand_out' | `lapsed_${string}`;

const RESET: readonly Column[] = [
  ...(['lease_expires_at', 'lease_ttl_seconds', 'acknowledged_at', 'started_at'] as const),
  ...(['last_heartbeat', 'replaced_heartbeat', 'lapsed_at', 'lapsed_acknowledged_at'] as const),
  ...(['lapsed_started_at', 'lapsed_heartbeat', 'lapsed_state', 'state'] as const),
];
const HAND_OUT: readonly Column[] = [
  ...(['id', 'worker_id', 'sessions_token_hash', 'handed_out_at', 'hand_out_count', 'is_last_hand_out'] as const),
];
const END: readonly Column[] = ['state', 'stopped_at', 'stop_reason', 'lease_expires_at'];
const ASKED: readonly Column[] = ['stop_requested_at', 'stop_requested_by'];

/** From which states, and what else may change by it. */
const EDGES: Readonly<Record<Exclude<Edge, 'enqueued'>, { from: readonly WorkState[]; changes: readonly Column[] }>> = {
  'handed out': { from: ['queued', 'starting', 'active'], changes: [...RESET, ...HAND_OUT] },
  'put back': { from: ['queued'], changes: ['lease_expires_at', ...HAND_OUT.filter((column) => column !== 'id')] },
  acked: {
    from: ['queued'],
    changes: ['state', 'acknowledged_at', 'lease_expires_at', 'handed_out_at', 'hand_out_count'],
  },
  beat: {
    from: ['starting', 'active'],
    changes: ['state', 'started_at', 'last_heartbeat', 'replaced_heartbeat', 'lease_expires_at', 'lease_ttl_seconds'],
  },
  replayed: { from: ['active'], changes: ['lease_expires_at', 'lease_ttl_seconds'] },
  'stop asked': { from: ['active'], changes: ['state', 'stop_reason', ...ASKED] },
  stopped: { from: ['queued', 'starting', 'active', 'stopping'], changes: [...END, ...ASKED] },
  finalised: { from: ['stopping'], changes: [...END, 'lapsed_at'] },
  exhausted: { from: ['queued', 'starting', 'active'], changes: [...END, 'lapsed_at'] },
  requeued: { from: ['starting', 'active'], changes: RESET },
  cancelled: { from: ['queued', 'starting', 'active', 'stopping'], changes: [...END, ...ASKED, 'follow_up'] },
  patched: { from: ['queued', 'starting', 'active', 'stopping', 'stopped'], changes: ['metadata'] },
  'follow-up kept': { from: ['queued', 'starting', 'active'], changes: ['follow_up'] },
  lapsed: { from: ['queued', 'starting', 'active', 'stopping'], changes: ['lease_expires_at'] },
};

const SECOND = 1_000_000;
/** Two instants of one statement lie so far apart at most, also on a machine that does something else meanwhile. */
const STATEMENT_MAX = 10 * SECOND;
const SWEEP_PATIENCE = 2 * SECOND;

/** Which edge the version is. Fails where there is none. */
export function edgeOf({ by, old, row }: Version, isTest: (by: string) => boolean): Edge {
  if (old === null) return 'enqueued';
  const changed = changes(old, row);
  const edge = isTest(by) ? 'lapsed' : nameOf(old, row, changed);
  assert(edge !== undefined, `a row is written for a reason: ${old.state} to ${row.state}, ${changed}`);
  const { from, changes: allowed } = EDGES[edge];
  assert(from.includes(old.state), `${edge} is nothing for what is ${old.state}`);
  const others = changed.filter((column) => !allowed.includes(column as Column));
  assert.deepEqual(others, [], `${edge} changes nothing else`);
  return edge;
}

const changes = (old: Row, row: Row): string[] =>
  Object.entries(row).flatMap(([column, value]) => {
    const before: unknown = old[column as keyof Row];
    return JSON.stringify(before) === JSON.stringify(value) ? [] : [column];
  });

function nameOf(old: Row, row: Row, changed: readonly string[]): Exclude<Edge, 'enqueued'> | undefined {
  if (row.state !== old.state) {
    if (row.state === 'starting') return 'acked';
    if (row.state === 'active') return 'beat';
    if (row.state === 'stopping') return 'stop asked';
    if (row.state === 'queued') return row.hand_out_count === old.hand_out_count ? 'requeued' : 'handed out';
    if (row.stop_reason === 'exhausted' || row.stop_reason === 'cancelled') return row.stop_reason;
    return row.stop_reason === 'abandoned' ? 'finalised' : 'stopped';
  }
  if (changed.length === 1 && changed[0] === 'metadata') return 'patched';
  if (changed.length === 1 && changed[0] === 'follow_up') return 'follow-up kept';
  if (row.state === 'active') return changed.includes('last_heartbeat') ? 'beat' : 'replayed';
  if (row.state !== 'queued') return undefined;
  return row.hand_out_count > old.hand_out_count ? 'handed out' : 'put back';
}

const hasLapsed = ({ lease_expires_at: lease }: Row, by: number, patience = 0): boolean =>
  lease !== null && micros(lease) + patience <= by;

const near = (one: string | null, other: string | null, seconds: number): boolean =>
  one !== null && other !== null && Math.abs(micros(one) - micros(other) - seconds * SECOND) < STATEMENT_MAX;

/** What must hold of an edge, whoever asked for it. `newest`: the greatest token that the item ever had. */
export function checkEdge(edge: Edge, { at, old, row }: Version, newest: number): void {
  if (old === null) {
    assert.deepEqual(
      [row.state, row.hand_out_count, row.lease_expires_at],
      ['queued', 0, null],
      'what is new is on offer',
    );
    return;
  }
  const isFree = (by: number, patience = 0) =>
    (old.state === 'queued' && old.lease_expires_at === null) || hasLapsed(old, by, patience);
  switch (edge) {
    case 'handed out':
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
      assert.equal(row.lease_expires_at, null, 'what is over has no lease');
      return;
    default:
  }
}
