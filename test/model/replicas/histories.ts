import fc from 'fast-check';
import type { Burst, History, Session, Step } from './plan.ts';
import {
  ack,
  beat,
  enqueue,
  expire,
  fault,
  lock,
  release,
  report,
  session,
  steps,
  stop,
  ticks,
  to,
  what,
  work,
} from './steps.ts';

/** What holders say, whatever has become of their hand-outs. */
const late = fc.array(fc.oneof(ack, beat, stop, release, report), { minLength: 1, maxLength: 3, size: 'max' });
/** What the sweep gave back, and its holder that comes late. */
const swept = fc
  .tuple(session, to, late)
  .map(([whose, at, calls]): readonly Step[] => [
    { do: 'lapse', to: at, session: whose, secondsAgo: 3 },
    { do: 'sweep', to: at },
    ...calls.map((step) => ({ ...step, session: whose })),
  ]);
/** A worker that begins with an item, and has it for now. */
const held = fc
  .tuple(work, fc.array(fault, { minLength: 1, maxLength: 2, size: 'max' }))
  .map(([step, faults]): Step => ({ ...step, blockMs: undefined, leavesAfterTurns: undefined, faults }));
/** What another has taken over, and its holder that comes late. */
const takenOver = fc
  .tuple(session, to, work, late)
  .map(([whose, at, taker, calls]): readonly Step[] => [
    { do: 'lapse', to: at, session: whose, secondsAgo: 1 },
    { ...taker, blockMs: undefined, leavesAfterTurns: undefined },
    ...calls.map((step) => ({ ...step, session: whose, before: true })),
  ]);
const locking = fc.array(fc.oneof({ weight: 6, arbitrary: lock }, { weight: 1, arbitrary: expire }), {
  ...{ minLength: 1, maxLength: 3, size: 'max' },
});
const lane: fc.Arbitrary<readonly Step[]> = fc.oneof(
  { weight: 12, arbitrary: fc.array(steps, { minLength: 1, maxLength: 2, size: 'max' }) },
  // What was just enqueued is to be found at once, be a look under way or not.
  { weight: 2, arbitrary: fc.tuple(enqueue, work) },
  { weight: 2, arbitrary: fc.tuple(held, fc.oneof(release, report, report)) },
  { weight: 1, arbitrary: swept },
  { weight: 1, arbitrary: takenOver },
  { weight: 2, arbitrary: locking },
);
const lanes = fc.array(lane, { minLength: 2, maxLength: 7, size: 'max' });
/** Rare, since a fresh replica costs as much as a history. */
const broken = (breaks: fc.Arbitrary<Step>) =>
  fc.tuple(lanes, breaks).map(([others, step]): Burst => [...others, [step]]);
/** Several owners ask for the locks at once. */
const contended = fc.array(locking, { minLength: 3, maxLength: 6, size: 'max' });
/** A look is under way when something comes and, after that, somebody who asks for it. */
const overtaken = fc
  .tuple(to, ticks, enqueue, work, work)
  .map(
    ([at, count, step, before, after]): Burst => [
      [{ do: 'slow', to: at, ticks: count }],
      [{ ...before, to: at }],
      [step, { ...after, to: at, blockMs: undefined }],
    ],
  );
/** A batch is done, and the replica never hears of it. */
const unheard = fc
  .tuple(to, fc.integer({ min: 0, max: 8 }), fc.oneof(beat, stop, release, report), fc.boolean())
  .map(([at, count, step, isOfAll]): Burst => {
    const sessions: Session[] = isOfAll ? ['s1', 's2', 's3'] : ['s1', 's2'];
    const each = {
      to: at,
      before: false,
      copies: 1,
      fault: { what: 'none' },
      token: 'current',
      isOperator: false,
      again: false,
    } as const;
    return [
      ...sessions.map((session) => [{ ...step, ...each, session } as Step]),
      [{ do: 'kill', to: at, ticks: count, mute: true }],
    ];
  });
const burst: fc.Arbitrary<Burst> = fc.oneof(
  { weight: 43, arbitrary: lanes },
  { weight: 4, arbitrary: contended },
  { weight: 3, arbitrary: overtaken },
  { weight: 2, arbitrary: unheard },
  { weight: 1, arbitrary: broken(fc.record({ do: what('crash'), to, ticks })) },
  { weight: 2, arbitrary: broken(fc.record({ do: what('kill'), to, ticks, mute: fc.boolean() })) },
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
