import assert from 'node:assert/strict';
import type { Of } from '../operations.ts';
import type { Step } from '../perform.ts';
import * as lane from '../process-lane.ts';
import { isLost, proofOf } from '../proofs.ts';
import type { World } from '../world.ts';

/** Renews, and tells of a request to cancel; what has lapsed, too, while nobody took over. */
export async function extend(world: World, operation: Of<'extend'>): Promise<Step | undefined> {
  const { shown, ttlSeconds, isRenewal } = operation;
  const found = proofOf(world, operation);
  if (found === undefined) return undefined;
  const { item, lease } = found;
  const line = (result: string) => `extend ${item.name} by ${ttlSeconds} s, proof ${shown} → ${result}`;
  const renewal = isRenewal
    ? await world.queue.renew(lease, ttlSeconds)
    : await world.queue.extend(lease, ttlSeconds).then(
        (extended) => ({ outcome: 'renewed', ...extended }) as const,
        (error: unknown) => ({ outcome: 'lost', error }) as const,
      );
  if (!lane.isHeldBy(item, lease)) {
    world.met('extend', item.state, 'lost');
    assert.equal(renewal.outcome, 'lost', 'only who holds it extends');
    assert(isLost(renewal.error));
    return { line: line('lost'), changed: new Set() };
  }
  const what = lane.hasExpired(item) ? 'renewed though lapsed' : 'renewed';
  world.met('extend', item.state, item.isCancelRequested ? `${what}, told of the request to cancel` : what);
  assert(renewal.outcome === 'renewed', 'who holds it extends');
  assert.equal(renewal.isCancelRequested, item.isCancelRequested, 'told in the same statement');
  const { seq, workerId, handOut, expiresAt } = renewal.lease;
  lane.renew(item, { seq, workerId, handOut, expiresAt }, ttlSeconds);
  world.prove(item, renewal.lease);
  return { line: line(what), changed: new Set([item]) };
}
