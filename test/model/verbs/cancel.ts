import assert from 'node:assert/strict';
import { cancelSession } from '../../../src/queue/cancel-session.ts';
import { agree } from '../agree.ts';
import * as model from '../model.ts';
import { names, placeOf } from '../naming.ts';
import type { Of } from '../operations.ts';
import type { Step } from '../perform.ts';
import type { World } from '../world.ts';

/** A session's items of every kind. */
export async function cancel(world: World, { slot }: Of<'cancel'>): Promise<Step> {
  const { environmentId, sessionId } = placeOf(world, slot);
  const stopped = await cancelSession(world.database, environmentId, sessionId);
  const unfinished = world
    .itemsIn(environmentId)
    .filter((item) => item.sessionId === sessionId && item.state !== 'stopped')
    .sort(model.byAge);
  for (const item of unfinished) {
    const what = item.followUp === null ? 'cancelled' : 'cancelled, its follow-up dropped';
    world.met('cancel', item.state, model.isVisible(item) ? what : `${what}, process`);
    model.cancel(item);
  }
  assert.deepEqual(
    stopped.map(({ seq }) => world.named(seq)),
    unfinished.map(({ name }) => name),
    'what was stopped, oldest first',
  );
  for (const [n, item] of unfinished.entries()) if (stopped[n]) agree(stopped[n], item);
  return { line: `cancel ${slot} → ${names(unfinished)}`, changed: new Set(unfinished) };
}
