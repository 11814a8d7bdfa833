import assert from 'node:assert/strict';
import type { Of } from '../operations.ts';
import type { Step } from '../perform.ts';
import * as lane from '../process-lane.ts';
import type { ModelItem, World } from '../world.ts';
import { endDoomed, from, take } from './claim.ts';

const TTL_SECONDS = 60;

/** Exactly that candidate, by compare-and-set: what was taken, changed or ended since it was read is left alone. */
export async function claimCandidate(world: World, operation: Of<'claim candidate'>): Promise<Step | undefined> {
  const candidate = world.candidates.at(operation.earlier ? -2 : -1);
  if (candidate === undefined) return undefined;
  const by = { workerId: operation.workerId, ttlSeconds: TTL_SECONDS };
  const item = world.items.find(({ seq }) => seq === candidate.seq);
  const answer = await world.queue.claim(candidate, by);
  const line = (result: unknown) => `claim candidate ${world.named(candidate.seq)} → ${result}`;
  const isStale =
    item?.handOutCount !== candidate.handOut || !lane.isEligible(item, world.environmentOf(item.environmentId));
  if (item === undefined || isStale) {
    world.met('claim candidate', item?.state ?? 'forgotten', 'stale');
    assert.equal(answer, null, 'a stale candidate is not claimed');
    return { line: line('stale'), changed: new Set() };
  }
  world.met('claim candidate', from(item), 'claimed');
  take(world, item, answer, by);
  return { line: line(by.workerId), changed: new Set([item]) };
}

/** From that very owner and that very instant, if it is lapsed still. */
export async function reclaim(world: World, operation: Of<'reclaim'>): Promise<Step | undefined> {
  const lease = world.expired.at(operation.earlier ? -2 : -1);
  if (lease === undefined) return undefined;
  const by = { workerId: operation.workerId, ttlSeconds: TTL_SECONDS };
  const item = world.items.find(({ seq }) => seq === lease.seq);
  const answer = await world.queue.reclaim(lease, by);
  const done = (result: string, changed: readonly ModelItem[] = []): Step => ({
    line: `reclaim ${world.named(lease.seq)} → ${result}`,
    changed: new Set(changed),
  });
  if (item === undefined || !lane.isHeldBy(item, lease) || !lane.hasExpired(item)) {
    world.met('reclaim', item?.state ?? 'forgotten', 'stale');
    assert.equal(answer, null, 'what was renewed, taken over or ended since is not taken over');
    return done('stale');
  }
  const { ended, followedBy } = endDoomed(world, 'reclaim', [item], await world.born());
  if (ended.length > 0) {
    assert.equal(answer, null, 'what is not to be run again is ended instead');
    return done(`ended, ${item.stopReason}`, [item, ...followedBy]);
  }
  world.met('reclaim', from(item), 'claimed');
  take(world, item, answer, by);
  return done(by.workerId, [item]);
}
