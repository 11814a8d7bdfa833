import assert from 'node:assert/strict';
import type { HandOut } from '../../../src/queue/poll.ts';
import { agree } from '../agree.ts';
import * as model from '../model.ts';
import { detail, nameOf, names } from '../naming.ts';
import type { Of } from '../operations.ts';
import type { Step } from '../perform.ts';
import * as wire from '../wire-lane.ts';
import type { ModelItem, World } from '../world.ts';
import { LONG_AGO_MS } from './change-environment.ts';

const RESERVATION_MS_MAX = 600_000;

/**
 * Polls that come together: the first has the first look to itself, all the others share the next. A look that sets something
 * aside is repeated for those it had nothing for: nobody goes away empty while there is work.
 */
export async function poll(world: World, operation: Of<'poll'>): Promise<Step> {
  const { takers, reservationMs, agedOnly } = operation;
  const environmentId = world.environments[operation.environment];
  const environment = world.environmentOf(environmentId);
  const minQueuedAgeMs = agedOnly ? LONG_AGO_MS : 0;
  const request = { environmentId, reclaimOlderThanMs: reservationMs, minQueuedAgeMs };
  const answers = await Promise.all(Array.from({ length: takers }, () => world.queue.poll(request)));
  const handOuts = new Map(answers.flatMap((answer) => (answer === null ? [] : [[answer.item.seq, answer]])));
  assert.equal(handOuts.size, answers.filter((answer) => answer !== null).length, 'an item goes to one taker');
  const born = await world.born();

  const changed = new Set<ModelItem>();
  const [given, setAside]: [ModelItem[], ModelItem[]] = [[], []];
  for (const item of world.itemsIn(environmentId).filter(wire.isAbandoned)) {
    world.met('poll', item.state, environment.isPaused ? 'finalised though paused' : 'finalised');
    model.end(item, 'abandoned');
    changed.add(item);
  }
  if (environment.isPaused) {
    for (const item of world.itemsIn(environmentId).filter(wire.isFree)) world.met('poll', item.state, 'paused');
  }
  for (let [waiting, looking] = [takers, 1]; waiting > 0; looking = waiting) {
    const seen = wire.look(world.itemsIn(environmentId), environment, looking, agedOnly);
    const spent = seen.filter((item) => wire.isSpent(item, environment));
    for (const item of spent) {
      const before = item.state;
      world.met('poll', before, 'exhausted');
      model.end(item, 'exhausted');
      for (const one of [item, ...world.follow('exhausted by poll', before, item, born)]) changed.add(one);
    }
    const free = seen.filter((item) => !spent.includes(item));
    for (const item of free) {
      take(world, item, handOuts.get(item.seq), reservationMs);
      changed.add(item);
    }
    given.push(...free);
    setAside.push(...spent);
    waiting -= spent.length > 0 ? free.length : looking;
  }
  if (agedOnly && world.itemsIn(environmentId).some((item) => wire.isFree(item) && !item.isAged))
    world.met('poll', 'queued', 'not old enough');
  assert.deepEqual([...handOuts.keys()].map((seq) => world.named(seq)).sort(), given.map(nameOf).sort(), 'and no more');
  const spent = setAside.length === 0 ? '' : `, set aside ${names(setAside)}`;
  return {
    line: `poll ${operation.environment}${detail({ takers, reservationMs, agedOnly })} → ${given.map(nameOf).join(', ') || null}${spent}`,
    changed,
  };
}

function take(world: World, item: ModelItem, handOut: HandOut | undefined, reservationMs: number): void {
  assert(handOut, `${item.name} is next, and there is somebody to take it`);
  const { id } = handOut.item;
  world.met('poll', item.state, item.known ? 'new id' : 'id kept');
  assert.equal(id === item.id, !item.known, 'the first hand-out keeps the id, every other mints one');
  assert(!item.oldIds.includes(id), 'an id is never used again');
  const reservationSeconds = Math.min(reservationMs, RESERVATION_MS_MAX) / 1_000;
  wire.handOut(item, id, handOut, reservationSeconds, world.environmentOf(item.environmentId));
  item.handOuts.push(handOut);
  agree(handOut.item, item);
}
