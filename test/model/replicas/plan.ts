import fc from 'fast-check';

/**
 * What a history on two replicas is made of: bursts, one after the other, each of lanes that run at the same time. The plan comes
 * from a seed, what the lanes meet does not. Items are named by their sessions, so that a plan means something whatever came of the steps before.
 */
export type Session = 's1' | 's2' | 's3';
/** Which replica is asked, by its place; after a crash a fresh one stands there. */
export type Which = 0 | 1;

/**
 * What becomes of a call's answer. `lost`: applied, and never heard of. `left`: the client goes away so many turns of the event loop
 * later. In both cases it comes back with the same, to `again`.
 */
export type Fault =
  | { readonly what: 'none' }
  | { readonly what: 'lost'; readonly again: Which }
  | { readonly what: 'left'; readonly again: Which; readonly turns: number };

/** Where the answer to a poll takes its time: before its first byte, or between that and the rest. */
export type Slow = 'before' | 'within';

export type Request = {
  readonly session: Session;
  readonly requestId: string | undefined;
  readonly followUp: boolean;
  readonly maxHandOuts: number | undefined;
};

export type TokenChoice = 'NO_HEARTBEAT' | 'current' | 'replaced' | 'forged';
/** The session's newest hand-out that a client knows of, or the one before. */
type Target = { readonly session: Session; readonly before: boolean };
/** The same at once, so many times, at the replica or at each in turn. */
type Copies = { readonly copies: number; readonly apart: boolean };

export type Step = { readonly to: Which } & (
  | { readonly do: 'enqueue'; readonly requests: readonly Request[]; readonly fault: Fault }
  /** A worker's run: a poll, and of what it gets the ack, two beats and the stop, as far as there are faults to tell. */
  | {
      readonly do: 'work';
      readonly blockMs: number | undefined;
      readonly leavesAfterTurns: number | undefined;
      readonly slow: Slow | undefined;
      readonly faults: readonly Fault[];
      readonly force: boolean;
      readonly asItem: boolean;
    }
  | ({ readonly do: 'ack'; readonly fault: Fault } & Target & Copies)
  | ({ readonly do: 'beat'; readonly token: TokenChoice; readonly isRetry: boolean; readonly fault: Fault } & Target &
      Copies)
  | ({ readonly do: 'stop'; readonly force: boolean; readonly isOperator: boolean; readonly fault: Fault } & Target &
      Copies)
  | ({ readonly do: 'patch' } & Target & Copies)
  | ({ readonly do: 'read' } & Target)
  | { readonly do: 'set'; readonly verb: 'ack' | 'beat' | 'stop'; readonly targets: readonly Target[] }
  | { readonly do: 'cancel'; readonly session: Session }
  | { readonly do: 'sweep' }
  | { readonly do: 'lapse'; readonly session: Session; readonly secondsAgo: number }
  /** Another transaction has the rows of these sessions for so many turns. */
  | { readonly do: 'hold'; readonly sessions: readonly Session[]; readonly turns: number }
  /** It is gone at once, with its connections on both sides and all that it knew. */
  | { readonly do: 'crash'; readonly turns: number }
  /** The replica's connections to the database end, and it lives on: by the database, or after answers that it did not get any more. */
  | { readonly do: 'kill'; readonly turns: number; readonly mute: boolean }
  /** An application's transaction and a batch of stops wait for each other. */
  | { readonly do: 'cross'; readonly session: Session }
);
export type Of<What extends Step['do']> = Extract<Step, { readonly do: What }>;
export type Burst = readonly (readonly Step[])[];
export type History = readonly Burst[];

const one = <Value>(...values: readonly Value[]) => fc.constantFrom(...values);
const what = <What extends string>(name: What) => fc.constant(name);
const session = one<Session>('s1', 's1', 's2', 's3');
const to = one<Which>(0, 1);
const turns = fc.integer({ min: 0, max: 25 });
const fault: fc.Arbitrary<Fault> = fc.oneof(
  { weight: 6, arbitrary: fc.constant<Fault>({ what: 'none' }) },
  { weight: 2, arbitrary: fc.record({ what: what('lost'), again: to }) },
  { weight: 1, arbitrary: fc.record({ what: what('left'), again: to, turns }) },
);
const target = { session, before: one(false, false, false, false, true) };
const copies = { copies: one(1, 1, 2, 3), apart: fc.boolean() };
const request: fc.Arbitrary<Request> = fc.record({
  session,
  requestId: one(undefined, undefined, 'r1', 'r2'),
  followUp: fc.boolean(),
  maxHandOuts: one(undefined, undefined, undefined, 1, 2),
});
const enqueue = fc.record({
  ...{ do: what('enqueue'), to, fault },
  requests: fc.oneof(
    { weight: 2, arbitrary: fc.tuple(request) },
    { weight: 1, arbitrary: fc.array(request, { minLength: 2, maxLength: 4 }) },
  ),
});
const work = fc.record({
  ...{ do: what('work'), to, force: fc.boolean(), asItem: one(false, false, true) },
  blockMs: one(undefined, undefined, 5, 40),
  leavesAfterTurns: fc.oneof({ weight: 4, arbitrary: fc.constant(undefined) }, { weight: 1, arbitrary: turns }),
  faults: fc.array(fault, { maxLength: 4, size: 'max' }),
  slow: one<Slow | undefined>(undefined, undefined, undefined, 'before', 'within'),
});
const beat = fc.record({
  ...{ do: what('beat'), to, ...target, ...copies, fault, isRetry: fc.boolean() },
  token: one<TokenChoice>('NO_HEARTBEAT', 'current', 'current', 'replaced', 'forged'),
});

const ack = fc.record({ do: what('ack'), to, ...target, ...copies, fault });
const stop = fc.record({
  ...{ do: what('stop'), to, ...target, ...copies, fault },
  ...{ force: fc.boolean(), isOperator: one(false, false, true) },
});

const steps: fc.Arbitrary<Step> = fc.oneof(
  { weight: 5, arbitrary: enqueue },
  { weight: 9, arbitrary: work },
  { weight: 2, arbitrary: ack },
  { weight: 4, arbitrary: beat },
  { weight: 3, arbitrary: stop },
  { weight: 2, arbitrary: fc.record({ do: what('patch'), to, ...target, ...copies }) },
  { weight: 1, arbitrary: fc.record({ do: what('read'), to, ...target }) },
  {
    weight: 2,
    arbitrary: fc.record({
      ...{ do: what('set'), to, verb: one('ack' as const, 'beat' as const, 'stop' as const) },
      targets: fc.array(fc.record(target), { minLength: 1, maxLength: 4 }),
    }),
  },
  { weight: 1, arbitrary: fc.record({ do: what('cancel'), to, session }) },
  { weight: 1, arbitrary: fc.record({ do: what('sweep'), to }) },
  { weight: 4, arbitrary: fc.record({ do: what('lapse'), to, session, secondsAgo: one(1, 3, 3) }) },
  {
    weight: 1,
    arbitrary: fc.record({ do: what('hold'), to, turns, sessions: fc.subarray<Session>(['s1', 's2', 's3']) }),
  },
);

/** What the sweep gave back, and its holder that comes late. */
const swept = fc.tuple(session, to, fc.oneof(ack, beat, stop)).map(([whose, at, late]): readonly Step[] => [
  { do: 'lapse', to: at, session: whose, secondsAgo: 3 },
  { do: 'sweep', to: at },
  { ...late, session: whose },
]);
const lane: fc.Arbitrary<readonly Step[]> = fc.oneof(
  { weight: 12, arbitrary: fc.array(steps, { minLength: 1, maxLength: 2, size: 'max' }) },
  // What was just enqueued is to be found at once, be a look under way or not.
  { weight: 2, arbitrary: fc.tuple(enqueue, work) },
  { weight: 1, arbitrary: swept },
);
const lanes = fc.array(lane, { minLength: 2, maxLength: 7, size: 'max' });
/** Rare, since a fresh replica costs as much as a history. */
const broken = (breaks: fc.Arbitrary<Step>) =>
  fc.tuple(lanes, breaks).map(([others, step]): Burst => [...others, [step]]);
const burst: fc.Arbitrary<Burst> = fc.oneof(
  { weight: 24, arbitrary: lanes },
  { weight: 1, arbitrary: broken(fc.record({ do: what('crash'), to, turns })) },
  { weight: 1, arbitrary: broken(fc.record({ do: what('kill'), to, turns, mute: fc.boolean() })) },
);
const cross = fc.record({ do: what('cross'), to, session }).map((step): History => [[[step]]]);
const bursts = fc.array(burst, { minLength: 2, maxLength: 5, size: 'max' });

/** There is work from the beginning. Without fast-check's bias towards the small. */
export const histories: fc.Arbitrary<History> = fc.noBias(
  fc
    .tuple(
      fc.array(enqueue, { minLength: 1, maxLength: 2 }).map((some): Burst => some.map((step) => [step])),
      bursts,
      fc.oneof({ weight: 39, arbitrary: fc.constant<History>([]) }, { weight: 1, arbitrary: cross }),
    )
    .map(([first, rest, last]) => [first, ...rest, ...last]),
);
