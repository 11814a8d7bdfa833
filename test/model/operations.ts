import fc from 'fast-check';
import type { NotBefore, Work } from './model.ts';
import type { ProcessOperation, Within } from './process-operations.ts';

/**
 * What a history is made of. An item is named by its session, not by its number, so that a history keeps its meaning when
 * shrinking takes steps out of it; a step whose item is not there is passed over.
 */
export type WireSlot = 'A/s1' | 'A/s2' | 'A/s3' | 'B/s1';
export type ProcessSlot =
  | 'A/s1 model_turn'
  | 'A/s2 model_turn'
  | 'B/s1 mcp_exec'
  | 'C/s1'
  | 'C/s2'
  | 'C/s1 model_turn'
  | 'C/s1 outputs_harvest'
  | 'C/s1 web_exec';
/** The last can never be used: there are no outputs to harvest in a self_hosted environment. */
export type Slot = WireSlot | ProcessSlot | 'A/s1 outputs_harvest';
/** C is a cloud environment. */
export type Letter = 'A' | 'B' | 'C';

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
  | {
      readonly verb: 'poll';
      readonly environment: Letter;
      readonly takers: number;
      readonly reservationMs: number;
      readonly agedOnly: boolean;
    }
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
  | { readonly verb: 'cancel'; readonly slot: Slot; readonly within: Within }
  | { readonly verb: 'requeue'; readonly target: Target }
  | { readonly verb: 'patch'; readonly target: Target; readonly metadata: Readonly<Record<string, string | null>> }
  | { readonly verb: 'put back'; readonly slot: Slot; readonly earlier: boolean; readonly unseen: boolean }
  | { readonly verb: 'release'; readonly slot: Slot; readonly earlier: boolean; readonly isDelayed: boolean }
  | {
      readonly verb: 'report';
      readonly slot: Slot;
      readonly earlier: boolean;
      readonly status: 'succeeded' | 'failed';
      readonly result: number | undefined;
      readonly isFinal: boolean;
    }
  | { readonly verb: 'sweep' }
  | { readonly verb: 'pause' | 'resume'; readonly environment: Letter }
  | { readonly verb: 'cap'; readonly environment: Letter; readonly maxHandOuts: number | null }
  /** Time, as far as the rows can tell: a lease ends, a not-before comes, an end is long ago, the clock was ahead at the last beat. */
  | { readonly verb: 'lapse'; readonly slot: Slot; readonly before: boolean; readonly secondsAgo: number }
  | { readonly verb: 'come due'; readonly slot: Slot; readonly before: boolean }
  | { readonly verb: 'grow old'; readonly slot: Slot; readonly before: boolean }
  | { readonly verb: 'set the clock back'; readonly slot: Slot }
  | ProcessOperation;

export type Of<Verb extends Operation['verb']> = Extract<Operation, { readonly verb: Verb }>;

export const rarely = fc.oneof(
  { weight: 9, arbitrary: fc.constant(false) },
  { weight: 1, arbitrary: fc.constant(true) },
);

export const wireSlot = fc.oneof(
  { weight: 3, arbitrary: fc.constant<WireSlot>('A/s1') },
  { weight: 1, arbitrary: fc.constantFrom<WireSlot>('A/s2', 'A/s3', 'B/s1') },
);
const slot = fc.oneof(
  { weight: 7, arbitrary: wireSlot },
  { weight: 1, arbitrary: fc.constant<Slot>('A/s1 model_turn') },
);
export const environment = fc.constantFrom<Letter[]>('A', 'A', 'A', 'B');
const target: fc.Arbitrary<Target> = fc.record({ slot, before: rarely, oldId: rarely, elsewhere: rarely });
const targets = fc.array(target, { minLength: 1, maxLength: 3 });
/** Mostly alone. */
export const within = fc.constantFrom<Within[]>('alone', 'alone', 'alone', 'committed', 'rolled back');
const verb = <Verb extends string>(name: Verb) => fc.constant(name);

export const work: fc.Arbitrary<Work> = fc.record({
  priority: fc.constantFrom(0, 1, -1),
  metadata: fc.constantFrom<Record<string, string>[]>({}, {}, { a: '0' }, { c: '3' }),
  maxHandOuts: fc.constantFrom(null, null, 1, 2),
  maxAttempts: fc.constant(null),
  notBefore: fc.constantFrom<NotBefore[]>('none', 'none', 'none', 'none', 'none', 'past', 'future'),
});
export const requestId = fc.constantFrom(undefined, undefined, undefined, 'r1', 'r2', 'r3');
const enqueue = fc.record({ verb: verb('enqueue'), slot, work, followUp: fc.boolean(), requestId });

/** As many pairs as there may be, so that one more of another name is refused. */
export const FULL = Object.fromEntries(Array.from({ length: 16 }, (_, n) => [`k${n}`, '']));

export const operation: fc.Arbitrary<Operation> = fc.oneof(
  { weight: 5, arbitrary: enqueue },
  {
    weight: 6,
    arbitrary: fc.record({
      verb: verb('poll'),
      environment: fc.oneof({ weight: 19, arbitrary: environment }, { weight: 1, arbitrary: fc.constant<Letter>('C') }),
      takers: fc.constantFrom(1, 1, 2, 3),
      reservationMs: fc.constantFrom(60_000, 600_000, 900_000),
      agedOnly: rarely,
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
  { weight: 2, arbitrary: fc.record({ verb: verb('cancel'), slot, within }) },
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
  { weight: 2, arbitrary: fc.record({ verb: verb('release'), slot, earlier: rarely, isDelayed: fc.boolean() }) },
  {
    weight: 3,
    arbitrary: fc.record({
      ...{ verb: verb('report'), slot, earlier: rarely, isFinal: rarely },
      status: fc.constantFrom<('succeeded' | 'failed')[]>('succeeded', 'failed'),
      result: fc.constantFrom(undefined, 1, 2),
    }),
  },
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
