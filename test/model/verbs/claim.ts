import assert from 'node:assert/strict';
import type { Claimed } from '../../../src/process/claim.ts';
import { agree } from '../agree.ts';
import * as model from '../model.ts';
import { names, placeOf } from '../naming.ts';
import type { Of } from '../operations.ts';
import type { Step } from '../perform.ts';
import * as lane from '../process-lane.ts';
import type { Born, ModelItem, World } from '../world.ts';

/**
 * The next of a kind. What is not to be run again is ended in passing, and who was answered nothing has been looked for again
 * among what followed it: null says that there is nothing to do.
 */
export async function claim(world: World, operation: Of<'claim'>): Promise<Step> {
  const { kind, workerId, ttlSeconds } = operation;
  const answer = await world.queue.claim(kind, { workerId, ttlSeconds });
  const born = await world.born();
  const mine = () => world.items.filter((item) => item.kind === kind);
  const [ended, changed] = [new Set<ModelItem>(), new Set<ModelItem>()];
  let next: ModelItem | undefined;
  for (let more = true; more; ) {
    [next] = lane.claimable(mine(), world.environmentOf);
    const doomed = endDoomed(world, 'claim', mine(), born);
    for (const item of doomed.ended) ended.add(item);
    for (const item of [...doomed.ended, ...doomed.followedBy]) changed.add(item);
    more = next === undefined && doomed.followedBy.length > 0;
  }
  if (next === undefined) {
    assert.equal(answer && world.named(answer.seq), null, 'nothing to do is null');
    world.met('claim', 'nothing', ended.size === 0 ? 'null' : 'null, what was left is ended');
  } else {
    world.met('claim', from(next), 'claimed');
    take(world, next, answer, operation);
    changed.add(next);
  }
  const passed = ended.size === 0 ? '' : `, ended ${names(ended)}`;
  return { line: `claim ${kind} ${workerId} ${ttlSeconds} → ${next?.name ?? null}${passed}`, changed };
}

/** Where it comes from. */
export function from(item: model.Item<unknown>): string {
  if (item.lane === 'wire') return item.known ? 'refused by polls after a hand-out' : 'refused by polls';
  if (item.state === 'active') return 'a dead claimant';
  return item.nextAttempt === 'past' && item.attempt > 1 ? 'a retry' : 'the line';
}

/** Ends what has lapsed and is not to be run again. */
export function endDoomed(
  world: World,
  verb: string,
  items: readonly ModelItem[],
  born: ReadonlyMap<string, Born>,
): { ended: ModelItem[]; followedBy: ModelItem[] } {
  const [ended, followedBy]: [ModelItem[], ModelItem[]] = [[], []];
  for (const item of items) {
    const doom = lane.doomOf(item, world.environmentOf(item.environmentId));
    if (doom === null) continue;
    world.met(verb, 'a dead claimant', doom);
    model.end(item, doom);
    ended.push(item);
    followedBy.push(...world.follow(`${doom} by ${verb}, process`, 'active', item, born));
  }
  return { ended, followedBy };
}

/** It was taken: the answer is the item with the proof. */
export function take(
  world: World,
  item: ModelItem,
  claimed: Claimed | null,
  { workerId, ttlSeconds }: { readonly workerId: string; readonly ttlSeconds: number },
): void {
  assert(claimed, `${item.name} is next, and taken`);
  assert.equal(world.named(claimed.seq), item.name, 'what is next is taken');
  const isRenamed = item.lane === 'wire' && item.known;
  assert.equal(claimed.id !== item.id, isRenamed, 'a new id exactly if a poll ever had it');
  assert(!item.oldIds.includes(claimed.id), 'an id is never used again');
  const { seq, handOut, expiresAt, workerId: holder } = claimed.lease;
  assert.equal(holder, workerId);
  const proof: model.Proof = { seq, workerId, handOut, expiresAt };
  lane.claim(item, claimed.id, proof, ttlSeconds);
  const isReclaimed = item.handOvers > 0 || item.wasBegun;
  world.prove(item, claimed.lease);
  agree(claimed, item);
  const { attempt, maxAttempts, input, traceContext } = claimed;
  assert.deepEqual(
    { seq, handOut, attempt, maxAttempts, isReclaimed: claimed.isReclaimed, input, traceContext },
    {
      ...{ seq: item.seq, handOut: item.handOutCount, attempt: item.attempt, isReclaimed, traceContext: null },
      maxAttempts: item.maxAttempts ?? lane.MAX_ATTEMPTS,
      input: placeOf(world, item.slot).lane === 'wire' ? null : item.priority,
    },
    `what is told of ${item.name}`,
  );
  assert(Object.isFrozen(claimed.lease), 'a lease is a frozen value');
}
