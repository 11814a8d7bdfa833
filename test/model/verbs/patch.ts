import assert from 'node:assert/strict';
import { QueueError } from '../../../src/queue/errors.ts';
import { agree, asRefusal, checkNotFound } from '../agree.ts';
import * as model from '../model.ts';
import { nameAll } from '../naming.ts';
import type { Of } from '../operations.ts';
import type { Step } from '../perform.ts';
import type { ModelItem, World } from '../world.ts';

export async function patch(world: World, operation: Of<'patch'>): Promise<Step | undefined> {
  const [target] = nameAll(world, [operation.target]);
  if (target === undefined) return undefined;
  const { item, ref, label } = target;
  const answer = await world.queue.patchMetadata(ref, operation.metadata).catch(asRefusal);
  const done = (result: string, changed: readonly ModelItem[] = []): Step => ({
    line: `patch ${label} ${JSON.stringify(operation.metadata)} → ${result}`,
    changed: new Set(changed),
  });
  if (!target.isFound) return done(checkNotFound(world, answer, target));
  if (!model.patch(item, operation.metadata)) {
    assert(answer instanceof QueueError && answer.code === 'invalid_metadata', 'too many pairs are refused');
    return done(answer.code);
  }
  assert(!(answer instanceof QueueError));
  agree(answer, item);
  return done('merged', [item]);
}
