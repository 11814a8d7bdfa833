import assert from 'node:assert/strict';
import { checkAnswers } from './answers.ts';
import { checkEdge } from './edge-checks.ts';
import { type Edge, edgeOf } from './edges.ts';
import { created, explain } from './explain.ts';
import { checkHistories } from './hand-outs.ts';
import { checkLocks } from './lock-check.ts';
import { micros, type Version } from './log.ts';
import { type Timeline, timelineOf } from './timeline.ts';
import type { World } from './world.ts';

/** A history, after its end, against the state table and the invariants. */
export async function check(world: World): Promise<void> {
  const timeline = timelineOf(world);
  const met = (cell: string) => world.meet(cell);
  const edges = new Map<Version, Edge>();
  for (const item of timeline.items.values()) checkItem(item, edges, met);
  checkSlots(timeline);
  explain(timeline, edges, new Set(world.replicas.flatMap(({ begun }) => [...begun])));
  checkAnswers({ timeline, edges, met, holds: world.holds });
  checkLocks(timeline, met);
  checkFailures(world);
  checkEnds(timeline);
  await checkHistories(world, timeline, edges);
}

function checkItem(item: readonly Version[], edges: Map<Version, Edge>, met: (cell: string) => void): void {
  let newest = 0;
  let before: Version | undefined;
  for (const version of item) {
    const { old, row, n } = version;
    try {
      assert.equal(old === null, before === undefined, 'an item is made once');
      const edge = edgeOf(version, (by) => by === 'test');
      assert(before?.row.state !== 'stopped' || edge === 'patched', 'a stopped item never changes');
      checkEdge(edge, version, newest);
      edges.set(version, edge);
      met(`${edge}, ${old?.state ?? 'no item'}${detail(edge, version)}`);
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error);
      throw new Error(`version ${n} of item ${row.seq}: ${why}`, { cause: error });
    }
    newest = Math.max(newest, row.last_heartbeat === null ? 0 : micros(row.last_heartbeat));
    before = version;
  }
}

/** What the state table tells apart besides. */
function detail(edge: Edge, { old, row }: Version): string {
  if (edge === 'handed out') return old?.id === row.id ? ': id kept' : ': new id';
  if (edge === 'put back') return row.handed_out_at === null ? ': unseen' : ': a byte went out';
  return '';
}

const isLive = (state: string): boolean => state === 'queued' || state === 'starting' || state === 'active';

/** Unique while live; an id is minted once; whatever has a follow-up and leaves its slot is followed. */
function checkSlots({ versions }: Timeline): void {
  const slots = new Map<string, number>();
  const owners = new Map<string, number>();
  for (const { row, old, transaction } of versions) {
    const slot = `${row.session_id} ${row.kind}`;
    assert((owners.get(row.id) ?? row.seq) === row.seq, `${row.id} is one item's`);
    assert(old === null || old.id === row.id || !owners.has(row.id), `${row.id} is minted anew`);
    owners.set(row.id, row.seq);
    if (isLive(row.state)) {
      assert((slots.get(slot) ?? row.seq) === row.seq, `${slot} has one live item`);
      slots.set(slot, row.seq);
    } else if (slots.get(slot) === row.seq) slots.delete(slot);
    if (old?.follow_up && isLive(old.state) && !isLive(row.state) && row.stop_reason !== 'cancelled') {
      const { id } = old.follow_up;
      const isThere = versions.some(
        (other) => other.old === null && other.row.id === id && other.transaction === transaction,
      );
      assert(isThere, `item ${row.seq} is followed by what waited for its slot`);
    }
  }
}

/** Only what crashed or lost its connections fails. */
function checkFailures({ calls, broken }: World): void {
  for (const { n, outcome, by } of calls) {
    if (outcome.kind === 'unknown' && outcome.why !== 'left') assert(broken.has(by), `call ${n} has no reason to fail`);
  }
}

/** An item is new once, and no request id forks. */
function checkEnds({ calls, seqOf }: Timeline): void {
  const answered = new Map<string, number | undefined>();
  const known = new Set<string>();
  for (const call of calls) {
    if (call.verb !== 'enqueue') continue;
    for (const [index, { id, isNew }] of created(call).entries()) {
      assert(!isNew || !known.has(id), `${id} was new before call ${call.n}`);
      if (isNew) known.add(id);
      const requestId: string | undefined = call.requests[index]?.requestId;
      if (requestId === undefined) continue;
      const seq: number | undefined = seqOf.get(id);
      assert.equal(answered.get(requestId) ?? seq, seq, `${requestId} is answered by one item`);
      answered.set(requestId, seq);
    }
  }
}
