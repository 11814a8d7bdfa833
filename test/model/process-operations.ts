import fc from 'fast-check';
import type { Work } from './model.ts';
import {
  environment,
  FULL,
  type Letter,
  type ProcessSlot,
  rarely,
  type Slot,
  type Target,
  within,
  work,
} from './operations.ts';
import { KINDS, type Kind } from './process-lane.ts';

/** Which of the proofs that an item ever had is shown, or one that it never had. */
export type Shown = 'current' | 'the one before' | 'the first' | "another's" | 'of another hand-out';

/** In a transaction of the caller's, and what becomes of that; or by itself. */
export type Within = 'alone' | 'committed' | 'rolled back';

type Held = { readonly slot: Slot; readonly shown: Shown };

export type ProcessOperation =
  | { readonly verb: 'claim'; readonly kind: Kind; readonly workerId: string; readonly ttlSeconds: number }
  /** Reads that own nothing: what they answer is kept, and may be stale when it is used. */
  | { readonly verb: 'look'; readonly kind: Kind }
  | { readonly verb: 'scan'; readonly kinds: readonly Kind[]; readonly limit: number }
  | { readonly verb: 'claim candidate'; readonly earlier: boolean; readonly workerId: string }
  | { readonly verb: 'reclaim'; readonly earlier: boolean; readonly workerId: string }
  | (Held & { readonly verb: 'extend'; readonly ttlSeconds: number; readonly isRenewal: boolean })
  | (Held & { readonly verb: 'complete'; readonly unlessCancelled: boolean; readonly within: Within })
  | (Held & { readonly verb: 'give back'; readonly within: Within })
  | (Held & { readonly verb: 'fail'; readonly isFinal: boolean; readonly within: Within })
  | (Held & { readonly verb: 'update'; readonly metadata: Readonly<Record<string, string | null>> })
  | (Held & { readonly verb: 'assert' })
  | { readonly verb: 'request cancel'; readonly target: Target; readonly within: Within }
  | { readonly verb: 'fall back'; readonly environment: Letter; readonly ever: boolean }
  | { readonly verb: 'age'; readonly slot: Slot; readonly before: boolean };

export const processSlot = fc.oneof(
  { weight: 3, arbitrary: fc.constant<ProcessSlot>('A/s1 model_turn') },
  { weight: 3, arbitrary: fc.constant<ProcessSlot>('C/s1') },
  { weight: 1, arbitrary: fc.constantFrom<ProcessSlot>('A/s2 model_turn', 'C/s2', 'C/s1 model_turn') },
  {
    weight: 1,
    arbitrary: fc.constantFrom<ProcessSlot>('B/s1 mcp_exec', 'C/s1 outputs_harvest', 'C/s1 web_exec'),
  },
);
/** Also what polls serve, and may leave. */
const slot = fc.oneof(
  { weight: 4, arbitrary: processSlot },
  { weight: 1, arbitrary: fc.constantFrom<Slot>('A/s1', 'A/s1', 'A/s2', 'B/s1') },
);
const kind = fc.constantFrom<Kind[]>('model_turn', 'model_turn', 'tool_exec', 'tool_exec', 'tool_exec', ...KINDS);
const shown = fc.oneof(
  { weight: 5, arbitrary: fc.constant<Shown>('current') },
  {
    weight: 2,
    arbitrary: fc.constantFrom<Shown>('the one before', 'the first', "another's", 'of another hand-out'),
  },
);
export const worker = fc.constantFrom('w1', 'w2');
export const ttl = fc.constantFrom(60, 300);
const verb = <Verb extends string>(name: Verb) => fc.constant(name);

export const processWork: fc.Arbitrary<Work> = fc
  .tuple(work, fc.constantFrom(null, null, 1, 2))
  .map(([some, maxAttempts]) => ({ ...some, maxAttempts }));

const enqueue = fc.record({
  verb: verb('enqueue'),
  slot: fc.oneof({ weight: 7, arbitrary: slot }, { weight: 1, arbitrary: fc.constant<Slot>('A/s1 outputs_harvest') }),
  work: processWork,
  followUp: fc.boolean(),
  requestId: fc.constantFrom(undefined, undefined, 'r1', 'r2'),
});

export const processOperation = fc.oneof(
  { weight: 6, arbitrary: enqueue },
  { weight: 6, arbitrary: fc.record({ verb: verb('claim'), kind, workerId: worker, ttlSeconds: ttl }) },
  { weight: 2, arbitrary: fc.record({ verb: verb('look'), kind }) },
  {
    weight: 2,
    arbitrary: fc.record({
      ...{ verb: verb('scan'), kinds: fc.constantFrom([...KINDS], ['tool_exec' as const]) },
      limit: fc.constantFrom(1, 10),
    }),
  },
  { weight: 3, arbitrary: fc.record({ verb: verb('claim candidate'), earlier: rarely, workerId: worker }) },
  { weight: 2, arbitrary: fc.record({ verb: verb('reclaim'), earlier: rarely, workerId: worker }) },
  { weight: 4, arbitrary: fc.record({ verb: verb('extend'), slot, shown, ttlSeconds: ttl, isRenewal: fc.boolean() }) },
  { weight: 3, arbitrary: fc.record({ verb: verb('complete'), slot, shown, unlessCancelled: fc.boolean(), within }) },
  { weight: 2, arbitrary: fc.record({ verb: verb('give back'), slot, shown, within }) },
  { weight: 4, arbitrary: fc.record({ verb: verb('fail'), slot, shown, isFinal: rarely, within }) },
  {
    weight: 1,
    arbitrary: fc.record({
      ...{ verb: verb('update'), slot, shown },
      metadata: fc.constantFrom<Record<string, string | null>[]>({ a: '1' }, { c: null, d: '' }, FULL),
    }),
  },
  { weight: 1, arbitrary: fc.record({ verb: verb('assert'), slot, shown }) },
  {
    weight: 3,
    arbitrary: fc.record({
      ...{ verb: verb('request cancel'), within },
      target: fc.record({ slot, before: rarely, oldId: rarely, elsewhere: rarely }),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({ verb: verb('fall back'), environment, ever: fc.constantFrom(true, true, false) }),
  },
  { weight: 2, arbitrary: fc.record({ verb: verb('age'), slot, before: rarely }) },
  // Time and what concerns both lanes.
  {
    weight: 5,
    arbitrary: fc.record({ verb: verb('lapse'), slot, before: rarely, secondsAgo: fc.constantFrom(1, 3) }),
  },
  { weight: 3, arbitrary: fc.record({ verb: verb('come due'), slot, before: rarely }) },
  { weight: 2, arbitrary: fc.record({ verb: verb('sweep') }) },
  { weight: 1, arbitrary: fc.record({ verb: verb('cancel'), slot, within }) },
  {
    weight: 2,
    arbitrary: fc.record({
      verb: verb('requeue'),
      target: fc.record({ slot, before: rarely, oldId: rarely, elsewhere: rarely }),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      verb: verb('cap'),
      environment: fc.constantFrom<Letter[]>('A', 'C', 'C'),
      maxHandOuts: fc.constantFrom(null, null, 1, 2),
    }),
  },
);
