import assert from 'node:assert/strict';
import type { WorkState } from '../../../src/queue/items.ts';
import type { Row, Version } from './log.ts';

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
  | 'released'
  | 'tried again'
  | 'concluded'
  | 'cancelled'
  | 'patched'
  | 'follow-up kept'
  | 'lapsed';

type Column = keyof Row | `lapsed_${string}`;

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
  released: { from: ['queued', 'starting', 'active'], changes: [...RESET, ...HAND_OUT, 'not_before'] },
  'tried again': {
    from: ['queued', 'starting', 'active'],
    changes: [...RESET, ...HAND_OUT, 'not_before', 'attempt', 'last_error'],
  },
  concluded: {
    from: ['queued', 'starting', 'active', 'stopping'],
    changes: [...END, 'stop_requested_at', 'outcome', 'result', 'last_error'],
  },
  cancelled: { from: ['queued', 'starting', 'active', 'stopping'], changes: [...END, ...ASKED, 'follow_up'] },
  patched: { from: ['queued', 'starting', 'active', 'stopping', 'stopped'], changes: ['metadata'] },
  'follow-up kept': { from: ['queued', 'starting', 'active'], changes: ['follow_up'] },
  lapsed: { from: ['queued', 'starting', 'active', 'stopping'], changes: ['lease_expires_at', 'not_before'] },
};

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
  // A new id that nobody has yet: its holder has given it back.
  if (row.id !== old.id && row.handed_out_at === null) return changed.includes('attempt') ? 'tried again' : 'released';
  if (row.state !== old.state) {
    if (row.state === 'starting') return 'acked';
    if (row.state === 'active') return 'beat';
    if (row.state === 'stopping') return 'stop asked';
    if (row.state === 'queued') return row.hand_out_count === old.hand_out_count ? 'requeued' : 'handed out';
    if (row.outcome !== null) return 'concluded';
    if (row.stop_reason === 'exhausted' || row.stop_reason === 'cancelled') return row.stop_reason;
    return row.stop_reason === 'abandoned' ? 'finalised' : 'stopped';
  }
  if (changed.length === 1 && changed[0] === 'metadata') return 'patched';
  if (changed.length === 1 && changed[0] === 'follow_up') return 'follow-up kept';
  if (row.state === 'active') return changed.includes('last_heartbeat') ? 'beat' : 'replayed';
  if (row.state !== 'queued') return undefined;
  return row.hand_out_count > old.hand_out_count ? 'handed out' : 'put back';
}
