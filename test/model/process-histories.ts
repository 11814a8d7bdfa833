import fc from 'fast-check';
import type { Work } from './model.ts';
import type { Of, Operation, Slot, WireSlot } from './operations.ts';
import { wireSlot } from './operations.ts';
import type { Kind } from './process-lane.ts';
import { processSlot, processWork, type Shown, ttl, type Within, worker } from './process-operations.ts';

/** How an item of the process lane goes its way: who takes it, what becomes of that, and how it ends. */
type Way = {
  readonly slot: Slot;
  readonly work: Work;
  readonly workerId: string;
  readonly ttlSeconds: number;
  readonly followedBy: readonly Work[];
  readonly start: readonly Event[];
  readonly events: readonly Event[];
  readonly end: readonly Event[];
  readonly afterwards: readonly Event[];
  readonly within: Within;
};
const EVENTS = {
  takes: ['claim', 'look', 'claim candidate'],
  keeps: ['extend', 'extend by an old proof', 'update', 'assert', 'look', 'scan', 'reclaim'],
  returns: [
    'give back',
    'fail',
    'come due',
    'fail for good',
    'complete',
    'complete unless cancelled',
    'complete by an old proof',
  ],
  others: [
    'lapse',
    'sweep',
    'request cancel',
    'cancel',
    'put back',
    'put the one before back',
    'forget',
    'enqueue again',
    'cap of 1',
    'no cap',
  ],
} as const;
type Event = (typeof EVENTS)[keyof typeof EVENTS][number];

const STARTS: readonly Event[][] = [
  ['claim'],
  ['claim'],
  ['claim'],
  ['look', 'claim candidate'],
  ['look', 'claim', 'claim candidate'],
  ['look', 'request cancel', 'claim candidate'],
];

/** Weighed so that the rarest cell of the table comes by in a few dozen histories. */
const MIDDLES: readonly Event[][] = [
  ...([[], [], ['extend'], ['extend', 'extend by an old proof'], ['update', 'assert']] as Event[][]),
  ...([
    ['fail', 'claim', 'come due', 'claim'],
    ['fail', 'come due', 'claim', 'fail', 'come due', 'claim'],
    ['give back', 'claim'],
    ['give back', 'look', 'claim', 'give back', 'claim candidate'],
  ] as Event[][]),
  ...([
    ['lapse', 'claim'],
    ['lapse', 'scan', 'reclaim', 'reclaim'],
    ['lapse', 'scan', 'extend', 'reclaim'],
    ['lapse', 'extend'],
    ['lapse', 'claim', 'lapse', 'claim', 'lapse', 'claim'],
    ['lapse', 'claim', 'complete by an old proof'],
    ['lapse', 'scan', 'complete', 'reclaim'],
  ] as Event[][]),
  ...([
    ['request cancel'],
    ['request cancel', 'request cancel', 'extend'],
    ['request cancel', 'lapse', 'extend'],
    ['request cancel', 'lapse', 'scan'],
    ['cap of 1'],
  ] as Event[][]),
];
const ENDS: readonly Event[][] = [
  ...([
    ['complete'],
    ['complete'],
    ['complete unless cancelled', 'complete'],
    ['complete unless cancelled'],
  ] as Event[][]),
  ...([['fail for good'], ['fail for good'], ['fail'], ['fail'], ['give back'], ['cancel']] as Event[][]),
  ...([
    ['lapse', 'sweep'],
    ['lapse', 'claim'],
    ['lapse', 'scan', 'reclaim'],
    ['lapse', 'scan', 'reclaim', 'reclaim'],
  ] as Event[][]),
  ...([['request cancel', 'complete'], ['lapse', 'complete'], []] as Event[][]),
];
const AFTERWARDS: readonly Event[][] = [
  ...([
    [],
    [],
    ['put back', 'put the one before back', 'claim'],
    ['put back', 'put back'],
    ['enqueue again', 'put the one before back'],
  ] as Event[][]),
  ...([['forget', 'sweep'], ['request cancel'], ['no cap', 'complete by an old proof']] as Event[][]),
];

const ways: fc.Arbitrary<Operation[]> = fc
  .record<Way>({
    ...{ slot: processSlot, work: processWork, workerId: worker, ttlSeconds: ttl },
    followedBy: fc.array(processWork, { maxLength: 1 }),
    start: fc.constantFrom(...STARTS),
    events: fc.constantFrom(...MIDDLES),
    end: fc.constantFrom(...ENDS),
    afterwards: fc.constantFrom(...AFTERWARDS),
    within: fc.constantFrom<Within[]>('alone', 'alone', 'committed', 'rolled back'),
  })
  .map((way) => {
    const { slot, work, followedBy } = way;
    const enqueue: Of<'enqueue'> = { verb: 'enqueue', slot, work, followUp: false, requestId: undefined };
    const next = followedBy.map((after): Operation => ({ ...enqueue, work: after, followUp: true }));
    const { start, events, end, afterwards } = way;
    return [enqueue, ...next, ...[...start, ...events, ...end, ...afterwards].map((event) => stepOf(event, way))];
  });

const kindOf = (slot: Slot): Kind => (slot.split(' ')[1] ?? 'tool_exec') as Kind;

function stepOf(event: Event, { slot, work, workerId, ttlSeconds, within }: Way): Operation {
  const target = { slot, before: false, oldId: false, elsewhere: false };
  const held = { slot, shown: 'current' as Shown };
  const environment = slot.startsWith('A') ? 'A' : slot.startsWith('B') ? 'B' : 'C';
  const [kind, isRenewal] = [kindOf(slot), ttlSeconds > 60];
  const steps: Record<Event, Operation> = {
    claim: { verb: 'claim', kind, workerId, ttlSeconds },
    look: { verb: 'look', kind },
    'claim candidate': { verb: 'claim candidate', earlier: false, workerId },
    scan: { verb: 'scan', kinds: [kind], limit: 10 },
    reclaim: { verb: 'reclaim', earlier: false, workerId },
    extend: { verb: 'extend', ...held, ttlSeconds: 60, isRenewal },
    'extend by an old proof': { verb: 'extend', slot, shown: 'the one before', ttlSeconds, isRenewal },
    update: { verb: 'update', ...held, metadata: { a: '1' } },
    assert: { verb: 'assert', ...held },
    'give back': { verb: 'give back', ...held, within },
    fail: { verb: 'fail', ...held, isFinal: false, within },
    'fail for good': { verb: 'fail', ...held, isFinal: true, within },
    complete: { verb: 'complete', ...held, unlessCancelled: false, within },
    'complete unless cancelled': { verb: 'complete', ...held, unlessCancelled: true, within },
    'complete by an old proof': { verb: 'complete', slot, shown: 'the one before', unlessCancelled: false, within },
    'come due': { verb: 'come due', slot, before: false },
    lapse: { verb: 'lapse', slot, before: false, secondsAgo: 1 },
    sweep: { verb: 'sweep' },
    'request cancel': { verb: 'request cancel', target },
    cancel: { verb: 'cancel', slot },
    'put back': { verb: 'requeue', target },
    'put the one before back': { verb: 'requeue', target: { ...target, before: true } },
    forget: { verb: 'grow old', slot, before: false },
    'enqueue again': { verb: 'enqueue', slot, work, followUp: true, requestId: 'r1' },
    'cap of 1': { verb: 'cap', environment, maxHandOuts: 1 },
    'no cap': { verb: 'cap', environment, maxHandOuts: null },
  };
  return steps[event];
}

/** What polls leave, or have let lapse, is claimed beside polls that come back to it. */
const refused: fc.Arbitrary<Operation[]> = fc
  .record({
    ...{ slot: wireSlot, work: processWork, workerId: worker, isFollowed: fc.boolean() },
    polled: fc.constantFrom<Turn[][]>(
      [],
      [],
      ['poll'],
      ['poll', 'lapse'],
      ['poll', 'lapse'],
      ['poll', 'give back'],
      ['poll', 'give back unseen'],
      ['poll', 'ack', 'lapse', 'sweep'],
      ['poll', 'ack', 'beat', 'lapse', 'sweep'],
    ),
    race: fc.constantFrom<Turn[][]>(
      ['claim'],
      ['claim', 'poll'],
      ['poll', 'claim'],
      ['look', 'poll', 'claim candidate'],
      ['look', 'claim candidate', 'poll'],
      ['look', 'pause', 'claim candidate', 'resume', 'claim'],
      ['pause', 'claim', 'resume'],
      ['never', 'claim'],
    ),
    after: fc.constantFrom<Turn[][]>(
      [],
      ['old calls'],
      ['calls'],
      ['lapse', 'poll', 'claim'],
      ['fail', 'poll'],
      ['fail for good', 'put back', 'poll'],
      ['complete', 'poll'],
      ['process lapse', 'claim', 'old calls'],
      ['request cancel', 'process lapse', 'sweep'],
    ),
  })
  .map(({ slot, work, workerId, isFollowed, polled, race, after }) => {
    const enqueue: Of<'enqueue'> = {
      verb: 'enqueue',
      slot,
      work: { ...work, maxHandOuts: null, notBefore: 'none' },
      followUp: false,
      requestId: undefined,
    };
    const turns = [...polled, ...race, ...after].flatMap((turn) => turnOf(turn, slot, workerId));
    const environment = slot === 'B/s1' ? 'B' : 'A';
    const [falls, ages]: Operation[] = [
      { verb: 'fall back', environment, ever: true },
      { verb: 'age', slot, before: false },
    ];
    return [falls, enqueue, ...(isFollowed ? [{ ...enqueue, followUp: true }] : []), ages, ...turns] as Operation[];
  });

type Turn =
  | 'poll'
  | 'ack'
  | 'beat'
  | 'lapse'
  | 'process lapse'
  | 'sweep'
  | 'give back'
  | 'give back unseen'
  | 'claim'
  | 'look'
  | 'claim candidate'
  | 'pause'
  | 'resume'
  | 'never'
  | 'old calls'
  | 'calls'
  | 'fail'
  | 'fail for good'
  | 'put back'
  | 'complete'
  | 'request cancel';

function turnOf(turn: Turn, slot: WireSlot, workerId: string): Operation[] {
  const environment = slot === 'B/s1' ? 'B' : 'A';
  const target = { slot, before: false, oldId: false, elsewhere: false };
  const held = { slot, shown: 'current', within: 'alone' } as const;
  const calls = (oldId: boolean): Operation[] => {
    const targets = [{ ...target, oldId }];
    return [
      { verb: 'ack', targets },
      { verb: 'heartbeat', targets, token: 'NO_HEARTBEAT', isRetry: false, desiredTtlSeconds: undefined },
      { verb: 'patch', target: { ...target, oldId }, metadata: { a: '1' } },
      { verb: 'stop', targets, force: true, reason: 'worker' },
      { verb: 'request cancel', target: { ...target, oldId } },
    ];
  };
  const turns: Record<Turn, Operation[]> = {
    poll: [{ verb: 'poll', environment, takers: 2, reservationMs: 60_000 }],
    ack: calls(false).slice(0, 1),
    beat: calls(false).slice(1, 2),
    lapse: [{ verb: 'lapse', slot, before: false, secondsAgo: 3 }],
    'process lapse': [{ verb: 'lapse', slot, before: false, secondsAgo: 1 }],
    sweep: [{ verb: 'sweep' }],
    'give back': [{ verb: 'put back', slot, earlier: false, unseen: false }],
    'give back unseen': [{ verb: 'put back', slot, earlier: false, unseen: true }],
    claim: [{ verb: 'claim', kind: 'tool_exec', workerId, ttlSeconds: 60 }],
    look: [{ verb: 'look', kind: 'tool_exec' }],
    'claim candidate': [{ verb: 'claim candidate', earlier: false, workerId }],
    pause: [{ verb: 'pause', environment }],
    resume: [{ verb: 'resume', environment }],
    never: [{ verb: 'fall back', environment, ever: false }],
    'old calls': calls(true),
    calls: calls(false),
    fail: [{ verb: 'fail', ...held, isFinal: false }],
    'fail for good': [{ verb: 'fail', ...held, isFinal: true }],
    'put back': [{ verb: 'requeue', target }],
    complete: [{ verb: 'complete', ...held, unlessCancelled: false }],
    'request cancel': [{ verb: 'request cancel', target }],
  };
  return turns[turn];
}

export const processWays = fc.oneof({ weight: 3, arbitrary: ways }, { weight: 2, arbitrary: refused });
