import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { bodyOf, type Call, type CallOf, isCall, listOf, statusOf } from './calls.ts';
import type { Edge } from './edges.ts';
import { didEnd, didEndWindingDown, mayHaveTold } from './explain-ends.ts';
import { micros, sameInstant, type Version } from './log.ts';
import { unmatched } from './matching.ts';
import { RESERVATION_MS } from './replica.ts';
import type { Timeline } from './timeline.ts';

export type Edges = ReadonlyMap<Version, Edge>;

/** Answered so, or without anybody having heard. */
const mayHaveDone = (call: Call, ...statuses: number[]): boolean =>
  call.outcome.kind === 'unknown' || statuses.includes(call.outcome.status);

const SECOND = 1_000_000;

/** Every version was made by a call that asked for it, and every success was a version of its own: the one is looked for from the other. */
export function explain(timeline: Timeline, edges: Edges, begun: ReadonlySet<string>): void {
  const { calls, broken, mayBe, items } = timeline;
  const polls = new Map(calls.filter(isCall('poll')).map((poll) => [poll.workerId, poll]));
  const some = (what: string, isIt: (call: Call) => boolean, version: Version) =>
    assert(
      calls.some((call) => isIt(call) && mayBe(call, version)),
      `somebody asked for ${what} of item ${version.row.seq}: version ${version.n}`,
    );
  const patches = new Map(calls.filter(isCall('patch')).map((patch) => [`${patch.key} ${patch.value}`, patch]));

  for (const [version, edge] of edges) {
    const { old, row } = version;
    switch (edge) {
      case 'handed out':
        checkHandOut(timeline, version, polls.get(row.worker_id ?? ''));
        break;
      case 'put back': {
        const poll = polls.get(old?.worker_id ?? '');
        assert(poll?.outcome.kind === 'unknown', `what was put back had reached nobody: version ${version.n}`);
        assert.equal(poll.by, version.by);
        assert(row.handed_out_at !== null || !begun.has(poll.workerId), 'an id that a byte went out of is not kept');
        break;
      }
      case 'acked':
        some('the ack', (call) => call.verb === 'ack' && call.id === old?.id && mayHaveDone(call, 200), version);
        break;
      case 'cancelled':
        some('the cancel', (call) => isCancelOf(call, version) && mayHaveDone(call, 200), version);
        break;
      case 'patched': {
        const key = Object.keys(row.metadata).find((one) => row.metadata[one] !== old?.metadata[one]) ?? '';
        const patch = patches.get(`${key} ${row.metadata[key]}`);
        assert(patch !== undefined && patch.id === row.id && mayHaveDone(patch, 200) && mayBe(patch, version));
        assert.deepEqual(
          row.metadata,
          { ...old?.metadata, [key]: patch.value },
          'two patches lose nothing of each other',
        );
        break;
      }
      case 'released':
      case 'tried again':
      case 'concluded':
        some(`its being ${edge}`, (call) => didEnd(call, edge, version), version);
        break;
      case 'follow-up kept':
        some('a follow-up', (call) => asksFor(call, version, true) && mayHaveDone(call, 200), version);
        break;
      case 'enqueued':
        if (!isSuccessor(timeline, version)) {
          some('the item', (call) => asksFor(call, version, false) && mayHaveDone(call, 200, 201), version);
        }
        break;
      default:
    }
  }
  for (const item of items.values()) {
    match(timeline, item, edges, ['beat', 'replayed'], isCall('beat'), didBeat, isExtended);
    match(timeline, item, edges, ['stop asked', 'stopped'], isEnding, didStop, (call) => statusOf(call) === 204);
  }
  const handedTo = [...edges].flatMap(([{ row, by }, edge]) =>
    edge === 'handed out' && !broken.has(by) ? [row.worker_id] : [],
  );
  assert.equal(new Set(handedTo).size, handedTo.length, 'a poll gets one item');
}

/** Both ways at once: each version has a call of its own, and each success a version of its own. */
function match<One extends Call>(
  { calls, mayBe }: Timeline,
  item: readonly Version[],
  edges: Edges,
  wanted: readonly Edge[],
  isVerb: (call: Call) => call is One,
  did: (call: One, version: Version, edge: Edge) => boolean,
  isSuccess: (call: One) => boolean,
): void {
  const ids = new Set(item.map(({ row }) => row.id));
  const asked = calls.filter(isVerb).filter((call) => 'id' in call && ids.has(call.id));
  const made = item.filter((version) => wanted.includes(edges.get(version) ?? 'enqueued'));
  const fits = (version: Version, call: One) =>
    mayBe(call, version) && did(call, version, edges.get(version) ?? 'enqueued');
  const successes = asked.filter(isSuccess);
  const perhaps = asked.filter((call) => call.outcome.kind === 'unknown' || isEnded(call));
  const unasked = unmatched(made, [...successes, ...perhaps], fits);
  assert(unasked === undefined, `version ${unasked?.n} of item ${unasked?.row.seq} was asked for by a call of its own`);
  const undone = unmatched(successes, made, (call, version) => fits(version, call));
  assert(undone === undefined, `call ${undone?.n} was answered with success, and is seen in the row`);
}

const isExtended = (call: Call): boolean => bodyOf(call)?.lease_extended === true;

function didBeat(call: CallOf<'beat'>, { old, row }: Version, edge: Edge): boolean {
  if (old === null || call.id !== old.id) return false;
  if (statusOf(call) === 200) {
    const { state, ttl_seconds: ttl, last_heartbeat: told } = bodyOf(call) ?? {};
    if (!sameInstant(told, row.last_heartbeat) || state !== 'active' || ttl !== row.lease_ttl_seconds) return false;
  }
  const isNamed = (token: string | null) =>
    token === null
      ? call.expected === 'NO_HEARTBEAT'
      : call.expected !== 'NO_HEARTBEAT' && sameInstant(token, call.expected);
  return edge === 'beat' ? isNamed(old.last_heartbeat) : call.isRetry && isNamed(old.replaced_heartbeat);
}

/** A release may also have found it ended. */
const isEnded = (call: Call): boolean => call.verb === 'release' && mayHaveTold(call, 'stopped');

const isEnding = (call: Call): call is CallOf<'stop' | 'release'> => call.verb === 'stop' || call.verb === 'release';

function didStop(call: CallOf<'stop' | 'release'>, version: Version, edge: Edge): boolean {
  if (call.verb === 'release') return didEndWindingDown(call, version, edge);
  const { id, force, reason } = call;
  const { old, row } = version;
  if (old === null || id !== old.id) return false;
  if (old.stop_requested_by === null && row.stop_requested_by !== reason) return false;
  return edge === 'stop asked' ? !force : force || old.state === 'queued' || old.state === 'starting';
}

function checkHandOut({ mayBe, broken }: Timeline, version: Version, poll: CallOf<'poll'> | undefined): void {
  const { row, n } = version;
  assert(poll !== undefined && mayBe(poll, version), `somebody polled for hand-out ${n} of item ${row.seq}`);
  const reserved = micros(row.lease_expires_at ?? '') - micros(row.handed_out_at ?? '') - RESERVATION_MS * 1_000;
  assert(Math.abs(reserved) < 10 * SECOND, 'the reservation is as long as the poll says');
  if (poll.outcome.kind === 'unknown') return;
  const { id, secret } = poll.outcome.body ?? {};
  // A look whose answer was lost: who may wait is looked for again, or hears of nothing, and the item lapses.
  if (id !== row.id && broken.has(version.by)) return;
  assert.equal(id, row.id, `hand-out ${n} of item ${row.seq} was answered to call ${poll.n}, which it was made for`);
  const { sessions_token: token } = JSON.parse(Buffer.from(secret ?? '', 'base64url').toString());
  const [name, key = ''] = String(token).split('.');
  assert.equal(name, `lhs_${row.id}`);
  assert.equal(
    createHash('sha256').update(key).digest('base64url'),
    row.sessions_token_hash,
    'the secret is of this hand-out',
  );
}

const isCancelOf = (call: Call, { row }: Version): boolean => call.verb === 'cancel' && call.session === row.session_id;

const asksFor = (call: Call, { row }: Version, followUp: boolean): boolean =>
  call.verb === 'enqueue' &&
  call.requests.some((request) => request.session === row.session_id && (!followUp || request.followUp));

/** Whoever left its slot in the same transaction had this one as its follow-up. */
const isSuccessor = ({ versions }: Timeline, { transaction, row }: Version): boolean =>
  versions.some((other) => other.transaction === transaction && other.old?.follow_up?.id === row.id);

/** What was answered with an item that is new, or that somebody got. */
export const created = (call: CallOf<'enqueue'>): { id: string; session: string; isNew: boolean }[] => {
  const body = bodyOf(call);
  const many = listOf(body);
  return call.requests.flatMap(({ session }, index) => {
    const id = many === undefined ? body?.id : many[index]?.work?.id;
    const isNew = many === undefined ? statusOf(call) === 201 : many[index]?.created === true;
    return id === undefined ? [] : [{ id, session, isNew }];
  });
};
