import fc from 'fast-check';
import type { Work } from './model.ts';
import { type Of, type Operation, type Slot, wireSlot, within } from './operations.ts';
import { processSlot, processWork, ttl, worker } from './process-operations.ts';
import { type StepName, walk } from './process-steps.ts';

/** A part of a way: its steps, one after the other. */
const oneOf = (...ways: readonly (readonly StepName[])[]) => fc.constantFrom(...ways);

/** How an item is taken, what becomes of it, how it ends, and who comes back to it. Weighed so that no cell is rare. */
const taken = oneOf(
  ['claim'],
  ['claim'],
  ['claim'],
  ['look', 'claim candidate'],
  ['look', 'claim', 'claim candidate'],
  ['look', 'request cancel', 'claim candidate'],
);
const held = oneOf(
  [],
  ['extend'],
  ['extend', 'extend by an old proof'],
  ['update', 'assert', 'update beyond measure'],
  ['wire calls'],
  ['complete by forged proofs'],
  ['extend', 'update by an old proof', 'assert by an old proof'],
  ['extend', 'give back by an old proof', 'fail by an old proof'],
  ['extend', 'give back by an old proof', 'fail by an old proof', 'complete by an old proof'],
  ['fail', 'claim', 'come due', 'claim'],
  ['fail', 'come due', 'sweep', 'look', 'claim', 'claim candidate'],
  ['fail', 'come due', 'claim', 'fail', 'come due', 'claim'],
  ['fail', 'extend', 'complete', 'fail'],
  ['give back', 'claim'],
  ['give back', 'extend', 'give back', 'fail', 'look', 'claim', 'give back', 'claim candidate'],
  ['lapse', 'claim'],
  ['lapse', 'scan', 'reclaim', 'reclaim'],
  ['lapse', 'scan', 'extend', 'reclaim'],
  ['lapse', 'extend'],
  ['lapse', 'claim', 'lapse', 'claim', 'lapse', 'claim'],
  ['lapse', 'claim', 'complete by an old proof'],
  ['lapse', 'scan', 'complete', 'reclaim'],
  ['request cancel', 'request cancel', 'extend'],
);
const ended = oneOf(
  ['complete'],
  ['complete unless cancelled'],
  ['fail for good'],
  ['fail for good'],
  ['fail'],
  ['give back'],
  [],
  ['cancel'],
  ['lapse', 'sweep'],
  ['lapse', 'claim'],
  ['lapse', 'complete'],
  ['lapse', 'fail'],
  ['lapse', 'fail for good'],
  ['lapse', 'give back'],
);
/** Somebody asked for its end, or it was handed out as often as it may be. */
const doomed = oneOf(
  ['request cancel'],
  ['request cancel', 'extend'],
  ['cap of 1'],
  ['cap of 1'],
  ['cap of 1', 'request cancel'],
);
const endedByDoom = oneOf(
  ['lapse', 'sweep'],
  ['lapse', 'claim'],
  ['lapse', 'scan', 'reclaim'],
  ['lapse', 'scan', 'reclaim'],
  ['give back'],
  ['give back'],
  ['lapse', 'give back'],
  ['lapse', 'give back'],
  ['lapse', 'give back'],
  ['fail'],
  ['lapse', 'fail'],
  ['lapse', 'extend', 'fail'],
  ['complete unless cancelled', 'complete'],
);
const afterwards = oneOf(
  [],
  ['put back', 'put the one before back', 'claim'],
  ['put back', 'put the one before back'],
  ['put back', 'put the one before back', 'cancel'],
  ['enqueue by name', 'put the one before back'],
  ['forget', 'sweep'],
  ['request cancel'],
  ['request cancel', 'extend', 'complete', 'fail', 'give back'],
  ['no cap', 'complete by an old proof', 'fail by an old proof', 'give back by an old proof'],
);

/** What polls leave, or have let lapse, is claimed beside polls that come back to it. */
const polled = oneOf(
  [],
  [],
  ['poll'],
  ['poll', 'lapse'],
  ['poll', 'lapse'],
  ['poll', 'take back'],
  ['poll for what is aged', 'lapse'],
  ['poll', 'take back unseen'],
  ['poll', 'ack', 'lapse', 'sweep'],
  ['poll', 'ack', 'beat', 'lapse', 'sweep'],
);
const raced = oneOf(
  ['claim'],
  ['claim', 'poll'],
  ['poll', 'claim'],
  ['never fall back', 'claim'],
  ['look', 'poll', 'claim candidate'],
  ['look', 'claim candidate', 'poll'],
  ['look', 'pause', 'claim candidate', 'resume', 'claim'],
  ['pause', 'claim', 'resume'],
);
const fallenBack = oneOf(
  [],
  ['wire calls'],
  ['wire calls by the old id'],
  ['lapse', 'poll', 'claim'],
  ['complete', 'poll'],
  ['fail', 'poll'],
  ['fail for good', 'put back', 'poll'],
  ['lapse', 'claim', 'wire calls by the old id'],
  ['request cancel', 'lapse', 'sweep'],
);

/** A way from its enqueue on, with what follows the item, if anything does. */
const along = (
  slot: fc.Arbitrary<Slot>,
  work: fc.Arbitrary<Work>,
  parts: readonly fc.Arbitrary<readonly StepName[]>[],
) =>
  fc
    .tuple(
      fc.record({ slot, work, workerId: worker, ttlSeconds: ttl, within }),
      fc.array(work, { maxLength: 1, size: 'max' }),
      fc.tuple(...parts),
    )
    .map(([traveller, followedBy, way]): Operation[] => {
      const enqueue: Of<'enqueue'> = { ...traveller, verb: 'enqueue', followUp: false, requestId: undefined };
      const next = followedBy.map((after) => ({ ...enqueue, work: after, followUp: true }));
      return [enqueue, ...next, ...walk(way.flat(), traveller)];
    });

const atOnce = processWork.map((work): Work => ({ ...work, maxHandOuts: null, notBefore: 'none' }));

export const processWays = fc.oneof(
  { weight: 4, arbitrary: along(processSlot, processWork, [taken, held, ended, afterwards]) },
  { weight: 3, arbitrary: along(processSlot, processWork, [oneOf(['claim']), doomed, endedByDoom, afterwards]) },
  { weight: 3, arbitrary: along(wireSlot, atOnce, [oneOf(['fall back', 'age']), polled, raced, fallenBack]) },
);
