import type { Operation } from './operations.ts';
import { cancel } from './verbs/cancel.ts';
import { changeEnvironment } from './verbs/change-environment.ts';
import { claim } from './verbs/claim.ts';
import { enqueue } from './verbs/enqueue.ts';
import { extend } from './verbs/extend.ts';
import { ack, heartbeat, putBack } from './verbs/hold.ts';
import { release, report } from './verbs/holder.ts';
import { look, scan } from './verbs/look.ts';
import { assertOwned, update } from './verbs/owned.ts';
import { patch } from './verbs/patch.ts';
import { claimCandidate, reclaim } from './verbs/pinned.ts';
import { poll } from './verbs/poll.ts';
import { requestCancel } from './verbs/request-cancel.ts';
import { requeue } from './verbs/requeue.ts';
import { settle } from './verbs/settle.ts';
import { stop } from './verbs/stop.ts';
import { sweep } from './verbs/sweep.ts';
import { age, comeDue, growOld, lapse, setClockBack } from './verbs/time.ts';
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
    case 'release':
      return release(world, operation);
    case 'report':
      return report(world, operation);
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
    case 'fall back':
      return changeEnvironment(world, operation);
    case 'lapse':
      return lapse(world, operation);
    case 'come due':
      return comeDue(world, operation);
    case 'grow old':
      return growOld(world, operation);
    case 'set the clock back':
      return setClockBack(world, operation);
    case 'claim':
      return claim(world, operation);
    case 'claim candidate':
      return claimCandidate(world, operation);
    case 'look':
      return look(world, operation);
    case 'scan':
      return scan(world, operation);
    case 'reclaim':
      return reclaim(world, operation);
    case 'extend':
      return extend(world, operation);
    case 'complete':
    case 'give back':
    case 'fail':
      return settle(world, operation);
    case 'update':
      return update(world, operation);
    case 'assert':
      return assertOwned(world, operation);
    case 'request cancel':
      return requestCancel(world, operation);
    case 'age':
      return age(world, operation);
  }
}
