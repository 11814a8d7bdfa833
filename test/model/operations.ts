import fc from 'fast-check';
import type { NotBefore, Work } from './model.ts';

/**
 * What a history is made of. An item is named by its session, not by its number, so that a history keeps its meaning when
 * shrinking takes steps out of it; a step whose item is not there is passed over.
 */
export type Slot = 'A/s1' | 'A/s2' | 'A/s3' | 'B/s1' | 'A/s1 model_turn';
export type Letter = 'A' | 'B';

export type Target = {
  readonly slot: Slot;
  /** The session's newest item, or the one before it. */
  readonly before: boolean;
  /** The last id that was superseded, in place of the item's own. */
  readonly oldId: boolean;
  /** Asked for through the other environment. */
  readonly elsewhere: boolean;
};

export type Token =
  | 'NO_HEARTBEAT'
  | 'current'
  | 'replaced'
  | 'stale'
  | 'from before the re-hand-out'
  | 'never given out';

export type Operation =
  | {
      readonly verb: 'enqueue';
      readonly slot: Slot;
      readonly work: Work;
      readonly followUp: boolean;
      readonly requestId: string | undefined;
    }
  | { readonly verb: 'poll'; readonly environment: Letter; readonly takers: number; readonly reservationMs: number }
  | { readonly verb: 'ack'; readonly targets: readonly Target[] }
  | {
      readonly verb: 'heartbeat';
      readonly targets: readonly Target[];
      readonly token: Token;
      readonly isRetry: boolean;
      readonly desiredTtlSeconds: number | undefined;
    }
  | {
      readonly verb: 'stop';
      readonly targets: readonly Target[];
      readonly force: boolean;
      readonly reason: 'worker' | 'operator';
    }
  | { readonly verb: 'cancel'; readonly slot: Slot }
  | { readonly verb: 'requeue'; readonly target: Target }
  | { readonly verb: 'patch'; readonly target: Target; readonly metadata: Readonly<Record<string, string | null>> }
  | { readonly verb: 'put back'; readonly slot: Slot; readonly earlier: boolean; readonly unseen: boolean }
  | { readonly verb: 'sweep' }
  | { readonly verb: 'pause' | 'resume'; readonly environment: Letter }
  | { readonly verb: 'cap'; readonly environment: Letter; readonly maxHandOuts: number | null }
  /** Time, as far as the rows can tell: a lease ends, a not-before comes, an end is long ago, the clock was ahead at the last beat. */
  | { readonly verb: 'lapse'; readonly slot: Slot; readonly before: boolean; readonly secondsAgo: number }
  | { readonly verb: 'come due'; readonly slot: Slot; readonly before: boolean }
  | { readonly verb: 'grow old'; readonly slot: Slot; readonly before: boolean }
  | { readonly verb: 'set the clock back'; readonly slot: Slot };

export type Of<Verb extends Operation['verb']> = Extract<Operation, { readonly verb: Verb }>;

const rarely = fc.oneof({ weight: 9, arbitrary: fc.constant(false) }, { weight: 1, arbitrary: fc.constant(true) });

const wireSlot = fc.oneof(
  { weight: 3, arbitrary: fc.constant<Slot>('A/s1') },
  { weight: 1, arbitrary: fc.constantFrom<Slot>('A/s2', 'A/s3', 'B/s1') },
);
const slot = fc.oneof(
  { weight: 7, arbitrary: wireSlot },
  { weight: 1, arbitrary: fc.constant<Slot>('A/s1 model_turn') },
);
const environment = fc.constantFrom<Letter[]>('A', 'A', 'A', 'B');
const target: fc.Arbitrary<Target> = fc.record({ slot, before: rarely, oldId: rarely, elsewhere: rarely });
const targets = fc.array(target, { minLength: 1, maxLength: 3 });
const verb = <Verb extends string>(name: Verb) => fc.constant(name);

const work: fc.Arbitrary<Work> = fc.record({
  priority: fc.constantFrom(0, 1, -1),
  metadata: fc.constantFrom<Record<string, string>[]>({}, {}, { a: '0' }, { c: '3' }),
  maxHandOuts: fc.constantFrom(null, null, 1, 2),
  notBefore: fc.constantFrom<NotBefore[]>('none', 'none', 'none', 'none', 'none', 'past', 'future'),
});
const requestId = fc.constantFrom(undefined, undefined, undefined, 'r1', 'r2', 'r3');
const enqueue = fc.record({ verb: verb('enqueue'), slot, work, followUp: fc.boolean(), requestId });

/** As many pairs as there may be, so that one more of another name is refused. */
const FULL = Object.fromEntries(Array.from({ length: 16 }, (_, n) => [`k${n}`, '']));

const operation: fc.Arbitrary<Operation> = fc.oneof(
  { weight: 5, arbitrary: enqueue },
  {
    weight: 6,
    arbitrary: fc.record({
      verb: verb('poll'),
      environment,
      takers: fc.constantFrom(1, 1, 2, 3),
      reservationMs: fc.constantFrom(60_000, 600_000, 900_000),
    }),
  },
  { weight: 4, arbitrary: fc.record({ verb: verb('ack'), targets }) },
  {
    weight: 6,
    arbitrary: fc.record({
      verb: verb('heartbeat'),
      targets,
      token: fc.oneof(
        { weight: 3, arbitrary: fc.constant<Token>('NO_HEARTBEAT') },
        { weight: 3, arbitrary: fc.constant<Token>('current') },
        {
          weight: 4,
          arbitrary: fc.constantFrom<Token[]>('replaced', 'stale', 'from before the re-hand-out', 'never given out'),
        },
      ),
      isRetry: fc.boolean(),
      desiredTtlSeconds: fc.constantFrom(undefined, 60, 240, 400),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      ...{ verb: verb('stop'), targets, force: fc.boolean() },
      reason: fc.constantFrom<('worker' | 'operator')[]>('worker', 'operator'),
    }),
  },
  { weight: 2, arbitrary: fc.record({ verb: verb('cancel'), slot }) },
  { weight: 2, arbitrary: fc.record({ verb: verb('requeue'), target }) },
  {
    weight: 1,
    arbitrary: fc.record({
      verb: verb('patch'),
      target,
      metadata: fc.constantFrom<Record<string, string | null>[]>({ a: '1' }, { a: '', b: '2' }, { a: null }, {}, FULL),
    }),
  },
  { weight: 3, arbitrary: fc.record({ verb: verb('put back'), slot, earlier: rarely, unseen: fc.boolean() }) },
  { weight: 4, arbitrary: fc.record({ verb: verb('sweep') }) },
  { weight: 1, arbitrary: fc.record({ verb: verb('pause'), environment }) },
  { weight: 2, arbitrary: fc.record({ verb: verb('resume'), environment }) },
  { weight: 2, arbitrary: fc.record({ verb: verb('cap'), environment, maxHandOuts: fc.constantFrom(null, 1, 2, 3) }) },
  {
    weight: 6,
    arbitrary: fc.record({ verb: verb('lapse'), slot, before: rarely, secondsAgo: fc.constantFrom(1, 3) }),
  },
  { weight: 2, arbitrary: fc.record({ verb: verb('come due'), slot, before: rarely }) },
  { weight: 1, arbitrary: fc.record({ verb: verb('grow old'), slot, before: rarely }) },
  { weight: 1, arbitrary: fc.record({ verb: verb('set the clock back'), slot }) },
);

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
  ...[['paused poll'], ['cap of 1', 'poll'], ['cap of 1', 'sweep']],
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
  const poll: Operation = { verb: 'poll', environment, takers: 3, reservationMs: 60_000 };
  const heartbeat: Omit<Of<'heartbeat'>, 'token'> = {
    ...{ verb: 'heartbeat', targets: [target], isRetry: true, desiredTtlSeconds: undefined },
  };
  const stop: Of<'stop'> = { verb: 'stop', targets: [target], force: false, reason: 'worker' };
  const giveBack: Of<'put back'> = { verb: 'put back', slot, earlier: false, unseen: false };

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
    cancel: [{ verb: 'cancel', slot }],
    'cancel all kinds': [
      { ...enqueue, slot: 'A/s1 model_turn', requestId: undefined },
      { verb: 'cancel', slot },
    ],
    'cap of 1': [{ verb: 'cap', environment, maxHandOuts: 1 }],
    'cap of 2': [{ verb: 'cap', environment, maxHandOuts: 2 }],
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

/** Single steps, and now and then an item's whole way, to its end and beyond: most of the table lies there. */
const steps: fc.Arbitrary<readonly Operation[]> = fc.oneof(
  { weight: 5, arbitrary: operation.map((single) => [single]) },
  { weight: 2, arbitrary: way.map(stepsOf) },
);

/** Without fast-check's bias towards the small, which would leave most of the table unvisited. */
export const histories: fc.Arbitrary<readonly Operation[]> = fc
  .noBias(fc.array(steps, { minLength: 1, maxLength: 12, size: 'max' }))
  .map((history) => history.flat());
