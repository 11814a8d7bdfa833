import assert from 'node:assert/strict';
import { LeaseError } from '../../../src/process/lease.ts';
import { QueueError } from '../../../src/queue/errors.ts';
import { agree } from '../agree.ts';
import * as model from '../model.ts';
import type { Of } from '../operations.ts';
import type { Step } from '../perform.ts';
import * as lane from '../process-lane.ts';
import { asLeaseError, isLost, proofOf } from '../proofs.ts';
import type { World } from '../world.ts';

/** The owner's write of progress. */
export async function update(world: World, operation: Of<'update'>): Promise<Step | undefined> {
  const found = proofOf(world, operation);
  if (found === undefined) return undefined;
  const { item, lease } = found;
  const answer = await world.queue.updateOwned(lease, operation.metadata).catch((error: unknown) => {
    if (error instanceof QueueError) return error;
    return asLeaseError(error);
  });
  const line = (result: string) => `update ${item.name}, proof ${operation.shown} → ${result}`;
  if (!lane.isHeldBy(item, lease)) {
    world.met('update', item.state, 'lost');
    assert(isLost(answer), 'only who holds it writes');
    return { line: line('lost'), changed: new Set() };
  }
  const isMerged = model.patch(item, operation.metadata);
  world.met('update', item.state, isMerged ? 'merged' : 'too many pairs');
  if (!isMerged) {
    assert(answer instanceof QueueError && answer.code === 'invalid_metadata', 'too many pairs are refused');
    return { line: line(answer.code), changed: new Set() };
  }
  assert(!(answer instanceof LeaseError || answer instanceof QueueError), 'who holds it writes');
  agree(answer, item);
  return { line: line('merged'), changed: new Set([item]) };
}

/** The proof is good until the transaction ends, and what it says of a request to cancel. Neither changes anything. */
export async function assertOwned(world: World, operation: Of<'assert'>): Promise<Step | undefined> {
  const found = proofOf(world, operation);
  if (found === undefined) return undefined;
  const { item, lease } = found;
  const answer = await world.queue
    .transaction(async (transaction) => {
      await world.queue.assert(lease, transaction);
      return 'held' as const;
    })
    .catch(asLeaseError);
  const isCancelRequested = await world.queue.cancelRequested(lease).catch(asLeaseError);
  const isHeld = lane.isHeldBy(item, lease);
  world.met('assert', item.state, isHeld ? 'held' : 'lost');
  if (isHeld) assert.deepEqual([answer, isCancelRequested], ['held', item.isCancelRequested]);
  else assert(isLost(answer) && isLost(isCancelRequested), 'a stale proof proves nothing');
  return { line: `assert ${item.name}, proof ${operation.shown} → ${isHeld}`, changed: new Set() };
}
