import fc from 'fast-check';
import type { Fault, Lock, Owner, Request, Session, Slow, Step, TokenChoice, Which } from './plan.ts';

const one = <Value>(...values: readonly Value[]) => fc.constantFrom(...values);
export const what = <What extends string>(name: What) => fc.constant(name);
export const session = one<Session>('s1', 's1', 's2', 's3');
export const to = one<Which>(0, 1);
const turns = fc.integer({ min: 0, max: 25 });
export const ticks = fc.integer({ min: 0, max: 25 });
export const fault: fc.Arbitrary<Fault> = fc.oneof(
  { weight: 6, arbitrary: fc.constant<Fault>({ what: 'none' }) },
  { weight: 2, arbitrary: fc.record({ what: what('lost'), again: to }) },
  { weight: 1, arbitrary: fc.record({ what: what('left'), again: to, turns }) },
);
const target = { session, before: one(false, false, false, false, true) };
const copies = { copies: one(1, 1, 2, 3), apart: fc.boolean() };
const asItem = one(false, false, true);
const isOperator = one(false, false, true);
const request: fc.Arbitrary<Request> = fc.record({
  session,
  requestId: one(undefined, undefined, 'r1', 'r2'),
  followUp: fc.boolean(),
  maxHandOuts: one(undefined, undefined, undefined, 1, 2),
  maxAttempts: one(undefined, undefined, 1, 2),
});
export const enqueue = fc.record({
  ...{ do: what('enqueue'), to, fault },
  requests: fc.oneof(
    { weight: 2, arbitrary: fc.tuple(request) },
    { weight: 1, arbitrary: fc.array(request, { minLength: 2, maxLength: 4 }) },
  ),
});
export const work = fc.record({
  ...{ do: what('work'), to, force: fc.boolean(), asItem },
  blockMs: one(undefined, undefined, 5, 40),
  leavesAfterTurns: fc.oneof({ weight: 4, arbitrary: fc.constant(undefined) }, { weight: 1, arbitrary: turns }),
  faults: fc.array(fault, { maxLength: 4, size: 'max' }),
  end: one('stop' as const, 'stop' as const, 'release' as const, 'succeeded' as const, 'failed' as const),
  slow: one<Slow | undefined>(undefined, undefined, undefined, 'before', 'within'),
});
export const beat = fc.record({
  ...{ do: what('beat'), to, ...target, ...copies, asItem, fault, isRetry: fc.boolean() },
  token: one<TokenChoice>('NO_HEARTBEAT', 'current', 'current', 'replaced', 'forged'),
});

export const ack = fc.record({ do: what('ack'), to, ...target, ...copies, asItem, fault });
export const stop = fc.record({
  ...{ do: what('stop'), to, ...target, ...copies, asItem, fault },
  ...{ force: fc.boolean(), isOperator },
});

export const release = fc.record({
  ...{ do: what('release'), to, ...target, ...copies, isOperator, fault },
  delayMs: one(0, 0, 20, 86_400_000),
});
export const report = fc.record({
  ...{ do: what('report'), to, ...target, ...copies, isOperator, fault, alike: fc.boolean() },
  ...{ hasResult: fc.boolean(), isFinal: one(false, false, true), again: one(false, false, true) },
  status: one('succeeded' as const, 'failed' as const),
});
export const name = one<Lock>('l1', 'l1', 'l2');
export const lock = fc.record({
  ...{ do: what('lock'), to, name, ...copies, fault, before: target.before },
  verb: one('acquire' as const, 'acquire' as const, 'renew' as const, 'let go' as const),
  owner: one<Owner>('o1', 'o2', 'o3'),
  ttlSeconds: one(30, 60, 600),
});
export const expire = fc.record({ do: what('expire'), to, name });

export const steps: fc.Arbitrary<Step> = fc.oneof(
  { weight: 5, arbitrary: enqueue },
  { weight: 9, arbitrary: work },
  { weight: 2, arbitrary: ack },
  { weight: 4, arbitrary: beat },
  { weight: 3, arbitrary: stop },
  { weight: 2, arbitrary: release },
  { weight: 3, arbitrary: report },
  { weight: 2, arbitrary: fc.record({ do: what('patch'), to, ...target, ...copies }) },
  { weight: 2, arbitrary: fc.record({ do: one('read' as const, 'result' as const), to, ...target }) },
  {
    weight: 2,
    arbitrary: fc.record({
      ...{ do: what('set'), to, verb: one('ack' as const, 'beat' as const, 'stop' as const) },
      targets: fc.array(fc.record(target), { minLength: 1, maxLength: 4 }),
    }),
  },
  { weight: 2, arbitrary: fc.record({ do: what('slow'), to, ticks }) },
  { weight: 1, arbitrary: fc.record({ do: what('cancel'), to, session, ...copies }) },
  { weight: 1, arbitrary: fc.record({ do: what('sweep'), to }) },
  { weight: 4, arbitrary: fc.record({ do: what('lapse'), to, session, secondsAgo: one(1, 3, 3) }) },
  {
    weight: 1,
    arbitrary: fc.record({ do: what('hold'), to, ticks, sessions: fc.subarray<Session>(['s1', 's2', 's3']) }),
  },
);
