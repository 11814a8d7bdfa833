import { enqueue, work } from './clients.ts';
import { crash, cross, hold, kill, lapse, slow } from './faults.ts';
import { cancel, many, patch, playSet, read } from './holders.ts';
import { expire, lock } from './locking.ts';
import type { Burst, Step, Which } from './plan.ts';
import { release, report } from './saying.ts';
import type { World } from './world.ts';

/** One burst: its lanes run at the same time. Then what was committed is read. */
export async function playBurst(world: World, burst: Burst): Promise<void> {
  await Promise.all(
    burst.map(async (lane) => {
      for (const step of lane) await play(world, step);
    }),
  );
  await world.log.read(world.clock);
}

async function play(world: World, step: Step): Promise<void> {
  switch (step.do) {
    case 'enqueue':
      return void (await enqueue(world, step));
    case 'work':
      return work(world, step);
    case 'ack':
    case 'beat':
    case 'stop':
      return many(world, step);
    case 'release':
      return release(world, step);
    case 'report':
      return report(world, step);
    case 'patch':
      return patch(world, step);
    case 'read':
    case 'result':
      return read(world, step);
    case 'lock':
      return lock(world, step);
    case 'expire':
      return expire(world, step);
    case 'set':
      return playSet(world, step);
    case 'cancel':
      return cancel(world, step);
    case 'sweep':
      return sweep(world, step.to);
    case 'lapse':
      return lapse(world, step);
    case 'hold':
      return hold(world, step);
    case 'slow':
      return slow(world, step);
    case 'crash':
      return crash(world, step);
    case 'kill':
      return kill(world, step);
    case 'cross':
      return cross(world, step);
  }
}

async function sweep(world: World, to: Which): Promise<void> {
  const { name, queue } = world.replicas[to];
  await queue.sweep().catch((error: unknown) => {
    if (!world.broken.has(name)) throw error;
  });
}
