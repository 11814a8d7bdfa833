import type { Work } from './model.ts';
import { FULL, type Letter, type Of, type Operation, type Slot } from './operations.ts';
import type { Kind } from './process-lane.ts';
import type { Within } from './process-operations.ts';

/** Whose way it is, and how it is gone. */
export type Traveller = {
  readonly slot: Slot;
  readonly work: Work;
  readonly workerId: string;
  readonly ttlSeconds: number;
  readonly within: Within;
};

const kindOf = (slot: Slot): Kind => (slot.split(' ')[1] ?? 'tool_exec') as Kind;
const letterOf = (slot: Slot): Letter => (slot.startsWith('A') ? 'A' : slot.startsWith('B') ? 'B' : 'C');

/** The steps of a way, by the names that ways are written in. */
function stepsOf({ slot, work, workerId, ttlSeconds, within }: Traveller) {
  const target = { slot, before: false, oldId: false, elsewhere: false };
  const [kind, environment, isRenewal] = [kindOf(slot), letterOf(slot), ttlSeconds > 60];
  const held = { slot, shown: 'current' } as const;
  const enqueue: Of<'enqueue'> = { verb: 'enqueue', slot, work, followUp: true, requestId: undefined };
  const ack = (oldId: boolean): Operation => ({ verb: 'ack', targets: [{ ...target, oldId }] });
  const beat = (oldId: boolean): Operation => {
    const targets = [{ ...target, oldId }];
    return { verb: 'heartbeat', targets, token: 'NO_HEARTBEAT', isRetry: false, desiredTtlSeconds: undefined };
  };
  const wireCalls = (oldId: boolean): Operation[] => [
    ...[ack(oldId), beat(oldId)],
    { verb: 'patch', target: { ...target, oldId }, metadata: { a: '1' } },
    { verb: 'stop', targets: [{ ...target, oldId }], force: true, reason: 'worker' },
    { verb: 'request cancel', target: { ...target, oldId }, within },
  ];
  const steps = {
    enqueue: [enqueue],
    'enqueue by name': [{ ...enqueue, requestId: 'r1' }],
    claim: [{ verb: 'claim', kind, workerId, ttlSeconds }],
    look: [{ verb: 'look', kind }],
    'claim candidate': [{ verb: 'claim candidate', earlier: false, workerId }],
    scan: [{ verb: 'scan', kinds: [kind], limit: 10 }],
    reclaim: [{ verb: 'reclaim', earlier: false, workerId }],
    extend: [{ verb: 'extend', ...held, ttlSeconds: 60, isRenewal }],
    'extend by an old proof': [{ verb: 'extend', slot, shown: 'the one before', ttlSeconds, isRenewal }],
    update: [{ verb: 'update', ...held, metadata: { a: '1' } }],
    'update beyond measure': [{ verb: 'update', ...held, metadata: { ...FULL, a: '1' } }],
    'update by an old proof': [{ verb: 'update', slot, shown: 'the one before', metadata: { a: '2' } }],
    assert: [{ verb: 'assert', ...held }],
    'assert by an old proof': [{ verb: 'assert', slot, shown: 'the one before' }],
    'give back': [{ verb: 'give back', ...held, within }],
    'give back by an old proof': [{ verb: 'give back', slot, shown: 'the one before', within }],
    fail: [{ verb: 'fail', ...held, isFinal: false, within }],
    'fail by an old proof': [{ verb: 'fail', slot, shown: 'the one before', isFinal: false, within }],
    'fail for good': [{ verb: 'fail', ...held, isFinal: true, within }],
    complete: [{ verb: 'complete', ...held, unlessCancelled: false, within }],
    'complete unless cancelled': [{ verb: 'complete', ...held, unlessCancelled: true, within }],
    'complete by an old proof': [{ verb: 'complete', slot, shown: 'the one before', unlessCancelled: false, within }],
    'complete by forged proofs': [
      { verb: 'complete', slot, shown: "another's", unlessCancelled: false, within },
      { verb: 'complete', slot, shown: 'of another hand-out', unlessCancelled: false, within },
    ],
    'come due': [{ verb: 'come due', slot, before: false }],
    lapse: [{ verb: 'lapse', slot, before: false, secondsAgo: 3 }],
    sweep: [{ verb: 'sweep' }],
    'request cancel': [{ verb: 'request cancel', target, within }],
    cancel: [{ verb: 'cancel', slot, within }],
    'put back': [{ verb: 'requeue', target }],
    'put the one before back': [{ verb: 'requeue', target: { ...target, before: true } }],
    forget: [{ verb: 'grow old', slot, before: false }],
    'cap of 1': [{ verb: 'cap', environment, maxHandOuts: 1 }],
    'no cap': [{ verb: 'cap', environment, maxHandOuts: null }],
    'fall back': [{ verb: 'fall back', environment, ever: true }],
    'never fall back': [{ verb: 'fall back', environment, ever: false }],
    age: [{ verb: 'age', slot, before: false }],
    pause: [{ verb: 'pause', environment }],
    resume: [{ verb: 'resume', environment }],
    poll: [{ verb: 'poll', environment, takers: 2, reservationMs: 60_000, agedOnly: false }],
    'poll for what is aged': [{ verb: 'poll', environment, takers: 2, reservationMs: 60_000, agedOnly: true }],
    ack: [ack(false)],
    beat: [beat(false)],
    'take back': [{ verb: 'put back', slot, earlier: false, unseen: false }],
    'take back unseen': [{ verb: 'put back', slot, earlier: false, unseen: true }],
    'wire calls': wireCalls(false),
    'wire calls by the old id': wireCalls(true),
  } satisfies Record<string, Operation[]>;
  return steps;
}

export type StepName = keyof ReturnType<typeof stepsOf>;

export const walk = (way: readonly StepName[], traveller: Traveller): Operation[] => {
  const steps = stepsOf(traveller);
  return way.flatMap((name) => steps[name]);
};
