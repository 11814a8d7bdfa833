import fc from 'fast-check';

/**
 * What a history is made of. An item is named by its session, not by its number, so that a history keeps its meaning when
 * shrinking takes steps out of it; a step whose item is not there is passed over.
 */
export type Slot = 'A/s1' | 'A/s2' | 'B/s1' | 'A/s1 model_turn';

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
  | { readonly verb: 'enqueue'; readonly slot: Slot; readonly priority: number; readonly postponed: boolean }
  | { readonly verb: 'poll'; readonly environment: 'A' | 'B'; readonly takers: number; readonly reservationMs: number }
  | { readonly verb: 'ack'; readonly targets: readonly Target[] }
  | {
      readonly verb: 'heartbeat';
      readonly targets: readonly Target[];
      readonly token: Token;
      readonly isRetry: boolean;
      readonly desiredTtlSeconds: number | undefined;
    }
  | { readonly verb: 'stop'; readonly targets: readonly Target[]; readonly force: boolean }
  | { readonly verb: 'patch'; readonly target: Target; readonly metadata: Readonly<Record<string, string | null>> }
  | { readonly verb: 'put back'; readonly slot: Slot; readonly earlier: boolean; readonly unseen: boolean }
  | { readonly verb: 'sweep' }
  /** Time, as far as the rows can tell: a lease ends, a not-before comes, the clock was ahead at the last beat. */
  | { readonly verb: 'lapse'; readonly slot: Slot; readonly before: boolean; readonly secondsAgo: number }
  | { readonly verb: 'come due'; readonly slot: Slot }
  | { readonly verb: 'set the clock back'; readonly slot: Slot };

const rarely = fc.oneof({ weight: 9, arbitrary: fc.constant(false) }, { weight: 1, arbitrary: fc.constant(true) });

const slot = fc.oneof(
  { weight: 12, arbitrary: fc.constant<Slot>('A/s1') },
  { weight: 3, arbitrary: fc.constantFrom<Slot>('A/s2', 'B/s1') },
  { weight: 1, arbitrary: fc.constant<Slot>('A/s1 model_turn') },
);
const target: fc.Arbitrary<Target> = fc.record({ slot, before: rarely, oldId: rarely, elsewhere: rarely });
const targets = fc.array(target, { minLength: 1, maxLength: 3 });
const verb = <Verb extends string>(name: Verb) => fc.constant(name);

/** As many pairs as there may be, so that one more of another name is refused. */
const FULL = Object.fromEntries(Array.from({ length: 16 }, (_, n) => [`k${n}`, '']));

const operation: fc.Arbitrary<Operation> = fc.oneof(
  {
    weight: 3,
    arbitrary: fc.record({ verb: verb('enqueue'), slot, priority: fc.constantFrom(0, 1, -1), postponed: rarely }),
  },
  {
    weight: 5,
    arbitrary: fc.record({
      verb: verb('poll'),
      environment: fc.constantFrom<('A' | 'B')[]>('A', 'A', 'A', 'B'),
      takers: fc.constantFrom(1, 1, 2, 3),
      reservationMs: fc.constantFrom(60_000, 600_000, 900_000),
    }),
  },
  { weight: 4, arbitrary: fc.record({ verb: verb('ack'), targets }) },
  {
    weight: 7,
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
  { weight: 2, arbitrary: fc.record({ verb: verb('stop'), targets, force: fc.boolean() }) },
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
  {
    weight: 6,
    arbitrary: fc.record({ verb: verb('lapse'), slot, before: rarely, secondsAgo: fc.constantFrom(1, 3) }),
  },
  { weight: 1, arbitrary: fc.record({ verb: verb('come due'), slot }) },
  { weight: 1, arbitrary: fc.record({ verb: verb('set the clock back'), slot }) },
);

/** Single steps, and now and then a session's whole way to its first beat: most of the table lies beyond it. */
const steps: fc.Arbitrary<readonly Operation[]> = fc.oneof(
  { weight: 15, arbitrary: operation.map((single) => [single]) },
  { weight: 1, arbitrary: slot.map(toActive) },
);

function toActive(slot: Slot): Operation[] {
  const targets = [{ slot, before: false, oldId: false, elsewhere: false }];
  return [
    { verb: 'enqueue', slot, priority: 0, postponed: false },
    { verb: 'poll', environment: slot === 'B/s1' ? 'B' : 'A', takers: 3, reservationMs: 60_000 },
    { verb: 'ack', targets },
    { verb: 'heartbeat', targets, token: 'NO_HEARTBEAT', isRetry: false, desiredTtlSeconds: undefined },
  ];
}

/** Without fast-check's bias towards the small, which would leave most of the table unvisited. */
export const histories: fc.Arbitrary<readonly Operation[]> = fc
  .noBias(fc.array(steps, { minLength: 1, maxLength: 30, size: 'max' }))
  .map((history) => history.flat());
