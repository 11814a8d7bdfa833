import type { Operation } from './operations.ts';
import { cancel } from './verbs/cancel.ts';
import { changeEnvironment } from './verbs/change-environment.ts';
import { enqueue } from './verbs/enqueue.ts';
import { ack, heartbeat, putBack } from './verbs/hold.ts';
import { patch } from './verbs/patch.ts';
import { poll } from './verbs/poll.ts';
import { requeue } from './verbs/requeue.ts';
import { stop } from './verbs/stop.ts';
import { sweep } from './verbs/sweep.ts';
import { comeDue, growOld, lapse, setClockBack } from './verbs/time.ts';
import type { ModelItem, World } from './world.ts';

/** What one step did. */
export type Step = {
  /** For the history. */
  readonly line: string;
  /** Whose rows it may have changed. */
  readonly changed: ReadonlySet<ModelItem>;
  /** Where else other work may be on offer now. */
  readonly environments?: readonly string[];
};

/** Runs a step on the library, tells the model, and holds the answers against it. Undefined: there was nothing to do it to. */
export async function perform(world: World, operation: Operation): Promise<Step | undefined> {
  switch (operation.verb) {
    case 'enqueue':
      return enqueue(world, operation);
    case 'poll':
      return poll(world, operation);
    case 'ack':
      return ack(world, operation);
    case 'heartbeat':
      return heartbeat(world, operation);
    case 'put back':
      return putBack(world, operation);
    case 'stop':
      return stop(world, operation);
    case 'cancel':
      return cancel(world, operation);
    case 'requeue':
      return requeue(world, operation);
    case 'patch':
      return patch(world, operation);
    case 'sweep':
      return sweep(world);
    case 'pause':
    case 'resume':
    case 'cap':
      return changeEnvironment(world, operation);
    case 'lapse':
      return lapse(world, operation);
    case 'come due':
      return comeDue(world, operation);
    case 'grow old':
      return growOld(world, operation);
    case 'set the clock back':
      return setClockBack(world, operation);
  }
}
