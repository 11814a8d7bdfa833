import assert from 'node:assert/strict';
import { QueueError } from '../../../src/queue/errors.ts';
import { requeueSetAside } from '../../../src/queue/requeue.ts';
import { agree, asRefusal, checkNotFound } from '../agree.ts';
import * as model from '../model.ts';
import { nameAll } from '../naming.ts';
import type { Of } from '../operations.ts';
import type { Step } from '../perform.ts';
import type { World } from '../world.ts';

/** Words of the refusals. */
const SAID = { 'not set aside': /was not set aside/, again: /was put back already/, slot: /has a live item/ } as const;

export async function requeue(world: World, operation: Of<'requeue'>): Promise<Step | undefined> {
  const [target] = nameAll(world, [operation.target]);
  if (target === undefined) return undefined;
  const { item, ref, label } = target;
  const answer = await requeueSetAside(world.database, ref).catch(asRefusal);
  const step = (result: string): Step => ({ line: `requeue ${label} → ${result}`, changed: new Set() });
  // An operator's verb: it knows every kind.
  if (ref.id !== item.id || ref.environmentId !== item.environmentId) return step(checkNotFound(world, answer, target));
  const verdict = model.judgeRequeue(item, world.items);
  world.met('requeue', item.stopReason ?? item.state, item.lane === 'wire' ? verdict : `${verdict}, ${item.lane}`);
  if (verdict !== 'requeued') {
    assert(answer instanceof QueueError, `requeue is refused: ${verdict}`);
    assert.equal(answer.code, 'conflict');
    assert.match(answer.message, SAID[verdict]);
    return step(verdict);
  }
  assert(!(answer instanceof QueueError), 'what was set aside is put back');
  const { priority, metadata, maxHandOuts, maxAttempts } = item;
  const work: model.Work = { priority, metadata, maxHandOuts, maxAttempts, notBefore: 'none' };
  const fresh = world.add(item.slot, answer, work, item.id);
  agree(answer, fresh);
  assert.equal(answer.requeuedFrom, item.id);
  return { ...step(`made ${fresh.name}`), changed: new Set([fresh]) };
}
