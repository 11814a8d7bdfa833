import assert from 'node:assert/strict';
import { QueueError } from '../../../src/queue/errors.ts';
import { asRefusal } from '../agree.ts';
import { nameAll } from '../naming.ts';
import type { Of } from '../operations.ts';
import type { Step } from '../perform.ts';
import * as lane from '../process-lane.ts';
import { inside } from '../transactions.ts';
import type { ModelItem, World } from '../world.ts';

/** Recorded on the row, without a proof; once more changes nothing. */
export async function requestCancel(world: World, operation: Of<'request cancel'>): Promise<Step | undefined> {
  const [target] = nameAll(world, [operation.target]);
  if (target === undefined) return undefined;
  const { item, ref, label } = target;
  const { within } = operation;
  const answer = await inside(world, within, (transaction) =>
    world.queue.requestCancel(ref, transaction).catch(asRefusal),
  );
  const before = item.state;
  const asked: ModelItem = { ...item };
  const isThis = ref.id === item.id && ref.environmentId === item.environmentId;
  const result = isThis ? lane.requestCancel(asked) : 'not found';
  const isUndone = within === 'rolled back' && (result === 'recorded' || result === 'ended');
  world.met('request cancel', before, isUndone ? `${result}, rolled back` : result);
  const done = (changed: readonly ModelItem[] = []): Step => ({
    line: `request cancel ${label}, ${within} → ${result}`,
    changed: new Set(changed),
  });
  if (result === 'not found') {
    assert(answer instanceof QueueError && answer.code === 'not_found', 'it is not in this lane, or not called so');
    return done();
  }
  assert.deepEqual(answer, { accepted: result !== 'over', state: asked.state });
  if (isUndone) return done();
  Object.assign(item, asked);
  if (result === 'recorded') return done([item]);
  if (result !== 'ended') return done();
  return done([item, ...world.follow('request cancel, process', before, item, await world.born())]);
}
