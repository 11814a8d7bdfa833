import assert from 'node:assert/strict';
import { QueueError } from '../../../src/queue/errors.ts';
import { checkNotFound } from '../agree.ts';
import { detail, nameAll, pairs } from '../naming.ts';
import type { Of } from '../operations.ts';
import type { Step } from '../perform.ts';
import * as wire from '../wire-lane.ts';
import type { ModelItem, World } from '../world.ts';

export async function stop(world: World, operation: Of<'stop'>): Promise<Step | undefined> {
  const named = nameAll(world, operation.targets);
  if (named.length === 0) return undefined;
  const { force, reason } = operation;
  const verb = force ? 'forced stop' : 'stop';
  const answers = await world.queue.stop(named.map(({ ref }) => ({ ...ref, force, reason })));
  const born = await world.born();
  const changed = new Set<ModelItem>();
  const results = named.map((target, n) => {
    const answer = answers[n];
    const { item, isFound } = target;
    if (!isFound) return checkNotFound(world, answer, target);
    const before = item.state;
    const result = wire.stop(item, force, reason);
    world.met(verb, before, result);
    if (result === 'conflict') {
      assert(answer instanceof QueueError && answer.code === 'conflict', 'what has ended is not stopped again');
      return result;
    }
    const followedBy = world.follow(verb, before, item, born);
    for (const one of [item, ...followedBy]) changed.add(one);
    assert.deepEqual(answer, { state: result, isFollowed: followedBy.length > 0 });
    return result;
  });
  return { line: `stop${detail({ force, reason })} ${pairs(named, results)}`, changed };
}
