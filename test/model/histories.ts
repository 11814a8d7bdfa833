import fc from 'fast-check';
import type { Work } from './model.ts';
import { type Of, type Operation, operation, type Slot, wireSlot, work } from './operations.ts';
import { processWays } from './process-histories.ts';
import { processOperation } from './process-operations.ts';

/** How an item came to where it is, what then becomes of it, and who comes back to it. */
type Way = {
  readonly slot: Slot;
  readonly work: Work;
  readonly requestId: string;
  readonly reaches: 'a poll' | 'an ack' | 'a beat';
  /** The first is kept. */
  readonly followedBy: readonly Work[];
  readonly lapsedSecondsAgo: number | undefined;
  readonly ends: readonly End[];
  readonly afterwards: 'asked for again' | 'put back' | 'forgotten' | undefined;
};
type End =
  | 'poll'
  | 'paused poll'
  | 'sweep'
  | 'beat'
  | 'stop'
  | 'forced stop'
  | 'forced stop of the one before'
  | 'cancel'
  | 'cancel all kinds'
  | 'give back'
  | 'give back unseen'
  | 'release'
  | 'release for later'
  | 'calls of the holder before'
  | 'report success'
  | 'report failure'
  | 'report final failure'
  | 'cap of 1'
  | 'cap of 2';

/** Weighed so that the rarest cell of the table comes by in a few dozen histories. */
const ENDS: readonly (readonly End[])[] = [
  ...[[], [], ['poll'], ['poll'], ['poll'], ['sweep'], ['sweep'], ['sweep'], ['sweep'], ['beat', 'sweep']],
  ...[
    ['stop'],
    ['stop', 'beat'],
    ['stop', 'cancel'],
    ['stop', 'cancel'],
    ['beat'],
    ['stop', 'poll'],
    ['stop', 'paused poll'],
    ['stop', 'sweep'],
  ],
  ...[['forced stop'], ['forced stop'], ['cancel'], ['cancel'], ['cancel'], ['cancel all kinds']],
  ...[['paused poll', 'poll'], ['give back', 'sweep'], ['give back', 'poll'], ['give back unseen']],
  ...[['paused poll'], ['paused poll'], ['cap of 1', 'poll'], ['cap of 1', 'sweep']],
  ...[
    ['release', 'poll'],
    ['release', 'release'],
    ['release for later', 'poll'],
    ['stop', 'release', 'release'],
  ],
  ...[
    ['report success', 'report success'],
    ['report success', 'report failure'],
    ['stop', 'report success'],
  ],
  ...[
    ['report failure', 'report failure'],
    ['report failure', 'report success'],
    ['report failure', 'poll'],
  ],
  ...[
    ['report final failure', 'report final failure'],
    ['stop', 'report failure'],
    ['cap of 1', 'release', 'sweep'],
  ],
  ...[
    ['stop', 'report failure'],
    ['stop', 'report failure'],
    ['stop', 'report failure', 'report failure'],
  ],
  ...[
    ['poll', 'calls of the holder before'],
    ['poll', 'calls of the holder before'],
  ],
  ['stop', 'stop', 'forced stop of the one before'],
  ['cap of 2', 'poll', 'give back unseen', 'cap of 1', 'sweep'],
] as End[][];

const way: fc.Arbitrary<Way> = fc.record({
  slot: wireSlot,
  work: fc
    .tuple(work, fc.constantFrom(null, null, 1, 1, 1, 2))
    .map(([some, maxHandOuts]) => ({ ...some, maxHandOuts })),
  requestId: fc.constantFrom('r1', 'r2', 'r3'),
  reaches: fc.constantFrom<Way['reaches'][]>('a poll', 'an ack', 'a beat', 'a beat'),
  followedBy: fc.array(work, { maxLength: 2, size: 'max' }),
  lapsedSecondsAgo: fc.constantFrom(undefined, 1, 3, 3, 3),
  ends: fc.constantFrom(...ENDS),
  afterwards: fc.constantFrom<Way['afterwards'][]>(
    ...(['asked for again', 'asked for again', 'put back', 'put back', 'put back', 'forgotten', undefined] as const),
  ),
});

function stepsOf({ slot, work, requestId, reaches, followedBy, lapsedSecondsAgo, ends, afterwards }: Way): Operation[] {
  const target = { slot, before: false, oldId: false, elsewhere: false };
  const environment = slot === 'B/s1' ? 'B' : 'A';
  const enqueue: Of<'enqueue'> = { verb: 'enqueue', slot, work, followUp: false, requestId };
  const poll: Operation = { verb: 'poll', environment, takers: 3, reservationMs: 60_000, agedOnly: false };
  const heartbeat: Omit<Of<'heartbeat'>, 'token'> = {
    ...{ verb: 'heartbeat', targets: [target], isRetry: true, desiredTtlSeconds: undefined },
  };
  const stop: Of<'stop'> = { verb: 'stop', targets: [target], force: false, reason: 'worker' };
  const giveBack: Of<'put back'> = { verb: 'put back', slot, earlier: false, unseen: false };

  const release: Omit<Of<'release'>, 'isDelayed'> = { verb: 'release', slot, earlier: false };
  const report: Omit<Of<'report'>, 'status'> = { verb: 'report', slot, earlier: false, result: 1, isFinal: false };

  const ways: Record<Way['reaches'], Operation[]> = {
    'a poll': [],
    'an ack': [{ verb: 'ack', targets: [target] }],
    'a beat': [
      { verb: 'ack', targets: [target] },
      { ...heartbeat, token: 'NO_HEARTBEAT' },
    ],
  };
  const endings: Record<End, Operation[]> = {
    poll: [poll],
    'paused poll': [{ verb: 'pause', environment }, poll, { verb: 'resume', environment }],
    sweep: [{ verb: 'sweep' }],
    beat: (['current', 'replaced', 'never given out'] as const).map((token) => ({ ...heartbeat, token })),
    stop: [stop],
    'forced stop': [{ ...stop, force: true }],
    'forced stop of the one before': [{ ...stop, targets: [{ ...target, before: true }], force: true }],
    cancel: [{ verb: 'cancel', slot, within: 'alone' }],
    'cancel all kinds': [
      { ...enqueue, slot: 'A/s1 model_turn', requestId: undefined },
      { verb: 'cancel', slot, within: 'alone' },
    ],
    'cap of 1': [{ verb: 'cap', environment, maxHandOuts: 1 }],
    'cap of 2': [{ verb: 'cap', environment, maxHandOuts: 2 }],
    release: [{ ...release, isDelayed: false }],
    'release for later': [{ ...release, isDelayed: true }],
    'calls of the holder before': [
      { ...release, earlier: true, isDelayed: false },
      { ...report, earlier: true, status: 'succeeded' },
      { ...report, earlier: true, status: 'failed' },
    ],
    'report success': [{ ...report, status: 'succeeded' }],
    'report failure': [{ ...report, status: 'failed' }],
    'report final failure': [{ ...report, status: 'failed', isFinal: true }],
    'give back': [giveBack],
    'give back unseen': [{ ...giveBack, unseen: true }],
  };
  const returns: Record<NonNullable<Way['afterwards']>, Operation[]> = {
    'asked for again': [
      { ...enqueue, followUp: true },
      { ...enqueue, slot: slot === 'A/s2' ? 'A/s3' : 'A/s2' },
    ],
    'put back': [true, false, true].map((before) => ({ verb: 'requeue', target: { ...target, before } })),
    forgotten: [{ verb: 'grow old', slot, before: false }, { verb: 'sweep' }, enqueue],
  };
  return [
    ...[enqueue, poll, ...ways[reaches]],
    ...followedBy.map((next): Operation => ({ ...enqueue, work: next, followUp: true, requestId: undefined })),
    ...(lapsedSecondsAgo === undefined
      ? []
      : [{ verb: 'lapse', slot, before: false, secondsAgo: lapsedSecondsAgo } as const]),
    ...ends.flatMap((end) => endings[end]),
    ...(afterwards === undefined ? [] : returns[afterwards]),
  ];
}

const LENGTHS = { minLength: 1, maxLength: 12, size: 'max' } as const;

/** Single steps, and now and then an item's whole way, to its end and beyond: most of the table lies there. */
const steps: fc.Arbitrary<readonly Operation[]> = fc.oneof(
  { weight: 4, arbitrary: operation.map((single) => [single]) },
  { weight: 2, arbitrary: way.map(stepsOf) },
);
const processSteps: fc.Arbitrary<readonly Operation[]> = fc.oneof(
  { weight: 3, arbitrary: processOperation.map((single) => [single]) },
  { weight: 2, arbitrary: processWays },
);
const lanes = [steps, steps, processSteps, processSteps, fc.oneof(steps, processSteps)];

/** Of one lane, of the other, or of both beside one another. Without fast-check's bias towards the small, which would leave most of the table unvisited. */
export const histories: fc.Arbitrary<readonly Operation[]> = fc
  .noBias(fc.oneof(...lanes.map((some) => fc.array(some, LENGTHS))))
  .map((history) => history.flat());
