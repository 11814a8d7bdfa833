import assert from 'node:assert/strict';
import { agree } from '../agree.ts';
import * as model from '../model.ts';
import { names, placeOf } from '../naming.ts';
import type { Of } from '../operations.ts';
import type { Step } from '../perform.ts';
import { inside } from '../transactions.ts';
import type { ModelItem, World } from '../world.ts';

/** A session's items of every kind. */
export async function cancel(world: World, { slot, within }: Of<'cancel'>): Promise<Step> {
  const { environmentId, sessionId } = placeOf(world, slot);
  const stopped = await inside(world, within, (transaction) =>
    world.queue.cancelSession(environmentId, sessionId, transaction),
  );
  const unfinished = world
    .itemsIn(environmentId)
    .filter((item) => item.sessionId === sessionId && item.state !== 'stopped')
    .sort(model.byAge);
  for (const item of unfinished) {
    const what = item.followUp === null ? 'cancelled' : 'cancelled, its follow-up dropped';
    const how = within === 'rolled back' ? 'rolled back' : what;
    world.met('cancel', item.state, model.isVisible(item) ? how : `${how}, process`);
  }
  const ended = unfinished.map((item): ModelItem => ({ ...item }));
  ended.forEach(model.cancel);
  assert.deepEqual(
    stopped.map(({ seq }) => world.named(seq)),
    unfinished.map(({ name }) => name),
    'what was stopped, oldest first',
  );
  for (const [n, item] of ended.entries()) if (stopped[n]) agree(stopped[n], item);
  const line = `cancel ${slot}, ${within} → ${names(unfinished)}`;
  if (within === 'rolled back') return { line, changed: new Set() };
  for (const [n, item] of unfinished.entries()) Object.assign(item, ended[n]);
  return { line, changed: new Set(unfinished) };
}
