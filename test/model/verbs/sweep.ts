import * as model from '../model.ts';
import { names } from '../naming.ts';
import type { Step } from '../perform.ts';
import * as lane from '../process-lane.ts';
import * as wire from '../wire-lane.ts';
import type { ModelItem, World } from '../world.ts';
import { endDoomed } from './claim.ts';

export async function sweep(world: World): Promise<Step> {
  const changed = new Set<ModelItem>();
  for (const item of world.items) {
    // What lapsed a moment ago is moved up to the present, however long this history has taken.
    if (item.leaseSeconds === -1 && model.isVisible(item)) {
      await world.moveLease(item, 1);
      changed.add(item);
    }
  }
  await world.queue.sweep();
  const born = await world.born();

  const old = world.items.filter((item) => item.isOld);
  const abandoned = world.items.filter(wire.isAbandoned);
  const spent = world.items.filter((item) => wire.isSweptAside(item, world.environmentOf(item.environmentId)));
  const lapsed = world.items.filter((item) => wire.isSweepable(item) && !spent.includes(item));
  for (const item of [...old, ...abandoned, ...spent, ...lapsed]) changed.add(item);
  for (const item of old) {
    world.met('sweep', item.state, 'forgotten');
    world.forget(item);
  }
  for (const item of abandoned) {
    world.met('sweep', item.state, 'finalised');
    model.end(item, 'abandoned');
  }
  for (const item of lapsed) {
    world.met('sweep', item.state, 'requeued');
    wire.sweep(item);
  }
  for (const item of spent) {
    const before = item.state;
    world.met('sweep', before, 'exhausted');
    model.end(item, 'exhausted');
    for (const successor of world.follow('exhausted by sweep', before, item, born)) changed.add(successor);
  }
  const doomed = endDoomed(world, 'sweep', world.items, born);
  for (const item of [...doomed.ended, ...doomed.followedBy]) changed.add(item);
  for (const item of world.items.filter(lane.hasComeDue)) {
    world.met('sweep', item.state, 'takes its place in line');
    item.nextAttempt = 'none';
    changed.add(item);
  }
  const results = { ended: doomed.ended, stopped: abandoned, queued: lapsed, 'set aside': spent, forgot: old };
  return {
    line: `sweep → ${Object.entries(results)
      .map(([name, items]) => `${name} ${names(items)}`)
      .join(', ')}`,
    changed,
  };
}
