import t from 'tap';
import {
  type Claimed,
  type KeepLeaseOptions,
  keepLease,
  type Lease,
  LeaseError,
  type Renewal,
  type Timing,
} from '../../src/index.ts';
import { turn, watchPromise } from '../support/gates.ts';

/** A clock that only moves when it is told to, and the timers by it. */
function fakeTiming(start = 5_000) {
  let now = start;
  const timers = new Set<{ at: number; run: () => void }>();
  const timing: Timing = {
    now: () => now,
    after(milliseconds, run) {
      const timer = { at: now + milliseconds, run };
      timers.add(timer);
      return () => void timers.delete(timer);
    },
  };
  /** Runs what is due on the way, in its order, and what follows from each before the next. */
  const advance = async (seconds: number) => {
    const end = now + seconds * 1_000;
    await turn();
    for (;;) {
      const [next] = [...timers].filter(({ at }) => at <= end).sort((a, b) => a.at - b.at);
      if (next === undefined) break;
      timers.delete(next);
      now = Math.max(now, next.at);
      next.run();
      await turn();
    }
    now = end;
    await turn();
  };
  return { timing, advance, pending: () => timers.size, seconds: () => (now - start) / 1_000 };
}

type Asked = {
  lease: Lease;
  ttlSeconds: number;
  isRetry: boolean | undefined;
  atSeconds: number;
  answer(renewal: Renewal | Error): void;
};

/** A store that keeps every renewal until the test answers it, or answers all of them by itself. */
function setUp(
  options: Partial<KeepLeaseOptions> & { ttlSeconds: number },
  {
    by,
    age = 0,
    claimedFor = options.ttlSeconds,
  }: { by?: (asked: Asked) => Renewal | Error; age?: number; claimedFor?: number } = {},
) {
  const clock = fakeTiming();
  const asked: Asked[] = [];
  const lease: Lease = {
    seq: '1',
    workerId: 'worker',
    handOut: 1,
    expiresAt: 'lease 0',
    askedAtMs: clock.timing.now() - age * 1_000,
    ttlSeconds: claimedFor,
  };
  const item = { id: 'work_1', lease } as Claimed;
  const store: KeepLeaseOptions['store'] = {
    renew: (held, ttlSeconds, options) =>
      new Promise((resolve, reject) => {
        const one: Asked = {
          lease: held,
          ttlSeconds,
          isRetry: options?.isRetry,
          atSeconds: clock.seconds(),
          answer: (renewal) => (renewal instanceof Error ? reject(renewal) : resolve(renewal)),
        };
        asked.push(one);
        if (by !== undefined) one.answer(by(one));
      }),
  };
  const keeper = keepLease(item, { store, timing: clock.timing, ...options });
  return { ...clock, asked, item, keeper, times: () => asked.map(({ atSeconds }) => atSeconds) };
}

/** As the store answers: stamped when it was asked. */
const renewed = (
  { lease, ttlSeconds, atSeconds }: Asked,
  more: Partial<Lease> & { isCancelRequested?: boolean } = {},
) => {
  const { isCancelRequested = false, ...changes } = more;
  const askedAtMs = 5_000 + atSeconds * 1_000;
  return {
    outcome: 'renewed' as const,
    lease: Object.freeze({ ...lease, ttlSeconds, askedAtMs, expiresAt: `lease ${atSeconds}`, ...changes }),
    isCancelRequested,
  };
};
const lost = (): Renewal => ({ outcome: 'lost', error: new LeaseError('lease_lost', 'somebody else has it') });
const deferred = (message = 'no answer'): Renewal => ({ outcome: 'deferred', error: new Error(message) });

t.test('TTL 300 s and stall 10 s: renewed every 10 s, while the work gets on', async (t) => {
  const { keeper, advance, asked, times } = setUp({ ttlSeconds: 300, stallSeconds: 10 }, { by: renewed });
  for (let second = 0; second < 45; second++) {
    await advance(1);
    keeper.progress();
  }
  t.strictSame(times(), [10, 20, 30, 40]);
  t.ok(asked.every(({ ttlSeconds }) => ttlSeconds === 300));
  t.notOk(keeper.signal.aborted);
});

for (const stallSeconds of [undefined, 0, -1]) {
  t.test(`TTL 300 s and stall ${stallSeconds}: renewed every 100 s, and never stalled`, async (t) => {
    const options = { ttlSeconds: 300, ...(stallSeconds === undefined ? {} : { stallSeconds }) };
    const { keeper, advance, times } = setUp(options, { by: renewed });
    await advance(1_000);
    t.strictSame(times(), [100, 200, 300, 400, 500, 600, 700, 800, 900, 1_000]);
    t.notOk(keeper.signal.aborted);
  });
}

t.test('a stall budget above a third of the TTL leaves the tick as it is', async (t) => {
  const { keeper, advance, times } = setUp({ ttlSeconds: 30, stallSeconds: 25 }, { by: renewed });
  await advance(24);
  keeper.progress();
  await advance(6);
  t.strictSame(times(), [10, 20, 30]);
});

t.test('a renewal without progress is none: stalled work is given up, its lease left', async (t) => {
  const { keeper, advance, asked, pending } = setUp({ ttlSeconds: 30, stallSeconds: 25 }, { by: renewed });
  await advance(24.9);
  t.notOk(keeper.signal.aborted);
  await advance(0.1);
  t.match(keeper.signal.reason, { name: 'LeaseError', code: 'work_stalled', message: /no progress for 25 s/ });
  t.equal(await keeper.givenUp, keeper.signal.reason);
  const renewals = asked.length;
  keeper.progress();
  await advance(1_000);
  t.equal(asked.length, renewals, 'it is not renewed any more, whatever the work reports then');
  t.equal(pending(), 0, 'no timer is left');
  t.equal(await keeper.close(), undefined, 'no renewal failed');
  await t.rejects(
    keeper.pin(async () => t.fail('given up')),
    { code: 'work_stalled' },
    'nor is its proof used',
  );
});

t.test('the stall is counted from the last progress', async (t) => {
  const { keeper, advance } = setUp({ ttlSeconds: 300, stallSeconds: 10 }, { by: renewed });
  await advance(7);
  keeper.progress();
  await advance(9.9);
  t.notOk(keeper.signal.aborted);
  await advance(0.1);
  t.match(keeper.signal.reason, { code: 'work_stalled' });
});

t.test('work that stalls during a renewal is given up; what the renewal brings is known all the same', async (t) => {
  const { keeper, advance, asked } = setUp({ ttlSeconds: 30, stallSeconds: 15 });
  await advance(15);
  t.match(keeper.signal.reason, { code: 'work_stalled' });
  const [renewal] = asked;
  if (renewal !== undefined) renewal.answer(renewed(renewal));
  await turn();
  t.equal(keeper.item.lease.expiresAt, 'lease 10');
  await advance(100);
  t.equal(asked.length, 1);
});

t.test('a lost lease aborts the work at once, and is not asked for again', async (t) => {
  const { keeper, advance, asked, pending } = setUp({ ttlSeconds: 30 }, { by: lost });
  await advance(9.9);
  t.notOk(keeper.signal.aborted);
  await advance(0.1);
  t.match(keeper.signal.reason, { code: 'lease_lost', message: 'somebody else has it' });
  t.equal(await keeper.givenUp, keeper.signal.reason);
  await advance(100);
  t.equal(asked.length, 1);
  t.equal(pending(), 0);
  t.equal(await keeper.close(), keeper.signal.reason);
});

t.test('a deferred renewal is tried again at the next tick, and aborts nothing while the lease lives', async (t) => {
  const answers = [deferred('first'), deferred('second')];
  const { keeper, advance, asked, times } = setUp(
    { ttlSeconds: 30, stallSeconds: 5 },
    { by: (one) => answers.shift() ?? renewed(one) },
  );
  for (let n = 0; n < 10; n++) {
    await advance(4);
    keeper.progress();
  }
  t.strictSame(times(), [5, 10, 15, 20, 25, 30, 35, 40]);
  t.ok(
    asked.slice(0, 3).every(({ lease }) => lease.expiresAt === 'lease 0'),
    'with the proof that is still the one',
  );
  t.equal(asked[3]?.lease.expiresAt, 'lease 15');
  t.notOk(keeper.signal.aborted);
  t.match(await keeper.close(), { message: 'first' }, 'the first failure is told, also where it was made good');
});

t.test('a store that throws is one that did not answer', async (t) => {
  const { keeper, advance, times } = setUp({ ttlSeconds: 30 }, { by: () => new Error('thrown') });
  await advance(29.9);
  t.strictSame(times(), [10, 20]);
  t.notOk(keeper.signal.aborted);
  await advance(0.1);
  t.match(keeper.signal.reason, { code: 'lease_lost', cause: { message: 'thrown' } });
  t.match(await keeper.close(), { message: 'thrown' });
});

t.test('trust ends a TTL after the last good renewal was asked for, not after it was answered', async (t) => {
  const { keeper, advance, asked } = setUp({ ttlSeconds: 30 });
  await advance(10);
  const [first] = asked;
  await advance(8);
  if (first !== undefined) first.answer(renewed(first)); // asked at 10, answered at 18
  await advance(2);
  t.equal(asked.length, 2, 'the next tick is counted from the asking, too');
  await advance(19.9);
  t.notOk(keeper.signal.aborted);
  await advance(0.1);
  t.equal(keeper.signal.aborted, true, 'at 40');
  t.match(keeper.signal.reason, { code: 'lease_lost' });
});

t.test('a renewal is bounded by the lease that it races, and never asked for twice at once', async (t) => {
  const { keeper, advance, asked, pending } = setUp({ ttlSeconds: 30 });
  await advance(29.9);
  t.equal(asked.length, 1);
  const closed = watchPromise(keeper.close());
  await turn();
  t.notOk(closed.settled, 'close waits for it');
  await advance(0.1);
  t.match(closed, { settled: true, value: { message: /not answered while the lease lived/ } });
  t.equal(pending(), 0);
});

t.test('an answer that comes when trust is over brings nothing back', async (t) => {
  const { keeper, advance, asked } = setUp({ ttlSeconds: 30 });
  await advance(30);
  t.match(keeper.signal.reason, { code: 'lease_lost' });
  const [renewal] = asked;
  if (renewal !== undefined) renewal.answer(renewed(renewal));
  await advance(100);
  t.equal(asked.length, 1);
  t.match(keeper.signal.reason, { code: 'lease_lost' });
  await t.rejects(
    keeper.pin(async () => t.fail('lost')),
    { code: 'lease_lost' },
  );
});

t.test('a local clock that jumps past the lease gives the work up without asking', async (t) => {
  const timers: (() => void)[] = [];
  let now = 0;
  const timing: Timing = {
    now: () => now,
    after: (_milliseconds, run) => {
      timers.push(run);
      return () => {};
    },
  };
  const { keeper, asked } = setUp({ ttlSeconds: 30, timing });
  now = 60_000; // the process stood still
  timers[0]?.();
  t.match(keeper.signal.reason, { code: 'lease_lost' });
  t.equal(asked.length, 0);
});

t.test('the item always has the proof as it is now; the rest of it stays', async (t) => {
  const { keeper, item, advance } = setUp({ ttlSeconds: 30 }, { by: renewed });
  t.equal(keeper.item, item);
  await advance(10);
  t.strictSame(keeper.item, { ...item, lease: keeper.item.lease });
  t.equal(keeper.item.lease.expiresAt, 'lease 10');
  await advance(10);
  t.equal(keeper.item.lease.expiresAt, 'lease 20');
  t.equal(item.lease.expiresAt, 'lease 0', 'what was claimed is frozen');
  t.throws(() => Object.assign(keeper.item, { id: 'other' }), TypeError);
});

t.test('each renewal is asked for with the proof of the one before', async (t) => {
  const { advance, asked } = setUp({ ttlSeconds: 30 }, { by: renewed });
  await advance(30);
  t.strictSame(
    asked.map(({ lease }) => lease.expiresAt),
    ['lease 0', 'lease 10', 'lease 20'],
  );
});

t.test('close waits for a renewal under way; the proof is stable from then on', async (t) => {
  const { keeper, advance, asked, pending } = setUp({ ttlSeconds: 30 });
  await advance(10);
  const closed = watchPromise(keeper.close());
  await turn();
  t.notOk(closed.settled);
  const [renewal] = asked;
  if (renewal !== undefined) renewal.answer(renewed(renewal));
  await turn();
  t.match(closed, { settled: true, value: undefined });
  t.equal(keeper.item.lease.expiresAt, 'lease 10');
  t.equal(pending(), 0);
  await advance(1_000);
  t.equal(asked.length, 1);
  t.equal(keeper.item.lease.expiresAt, 'lease 10');
  t.notOk(keeper.signal.aborted, 'the end of the keeping is not the end of the work');
});

t.test('close between renewals ends at once, also asked for twice', async (t) => {
  const { keeper, advance, asked, pending } = setUp({ ttlSeconds: 30 }, { by: renewed });
  await advance(20);
  t.strictSame(await Promise.all([keeper.close(), keeper.close()]), [undefined, undefined]);
  t.equal(pending(), 0);
  await advance(100);
  t.equal(asked.length, 2);
});

t.test('what was deferred may have been done: it is asked for as such, until there is an answer', async (t) => {
  const answers = [deferred(), deferred()];
  const { advance, asked, keeper } = setUp(
    { ttlSeconds: 30, stallSeconds: 5 },
    { by: (one) => answers.shift() ?? renewed(one) },
  );
  for (let n = 0; n < 5; n++) {
    await advance(4);
    keeper.progress();
  }
  t.strictSame(
    asked.map(({ isRetry }) => isRetry),
    [false, true, true, false],
  );
});

for (const use of ['close', 'pin'] as const) {
  t.test(`${use} asks once more for what was deferred, so that the proof is the one that counts`, async (t) => {
    const answers = [deferred('first')];
    const { keeper, advance, asked } = setUp({ ttlSeconds: 30 }, { by: (one) => answers.shift() ?? renewed(one) });
    await advance(12);
    if (use === 'close') t.match(await keeper.close(), { message: 'first' });
    else t.equal(await keeper.pin(async ({ lease }) => lease.expiresAt), 'lease 12');
    t.equal(keeper.item.lease.expiresAt, 'lease 12');
    t.strictSame(
      asked.map(({ isRetry, atSeconds }) => ({ isRetry, atSeconds })),
      [
        { isRetry: false, atSeconds: 10 },
        { isRetry: true, atSeconds: 12 },
      ],
    );
  });
}

t.test('a store that stays away ends a close all the same, when it has been asked, or the lease is over', async (t) => {
  const first = setUp({ ttlSeconds: 30 }, { by: () => deferred('first') });
  await first.advance(12);
  t.match(await first.keeper.close(), { message: 'first' });
  t.equal(first.asked.length, 2);
  t.equal(first.pending(), 0);

  const second = setUp({ ttlSeconds: 30 });
  await second.advance(10);
  second.asked[0]?.answer(deferred('first'));
  await second.advance(5);
  const closed = watchPromise(second.keeper.close());
  await second.advance(14.9);
  t.notOk(closed.settled);
  await second.advance(0.1);
  t.match(closed, { settled: true, value: { message: 'first' } });
  t.equal(second.pending(), 0);
});

t.test('a lease that turns out lost while it is closed is told by close, and aborts nothing', async (t) => {
  const { keeper, advance, asked } = setUp({ ttlSeconds: 30 });
  await advance(10);
  const closed = keeper.close();
  asked[0]?.answer(lost());
  t.match(await closed, { code: 'lease_lost' });
  t.notOk(keeper.signal.aborted);
});

t.test(
  'a request to cancel aborts the work with its own code, and the lease is kept for it to wind down',
  async (t) => {
    const { keeper, advance, times, asked } = setUp(
      { ttlSeconds: 30 },
      { by: (one) => renewed(one, { isCancelRequested: one.atSeconds >= 20 }) },
    );
    const givenUp = watchPromise(keeper.givenUp);
    await advance(10);
    t.notOk(keeper.signal.aborted);
    await advance(10);
    t.match(keeper.signal.reason, { name: 'LeaseError', code: 'cancelled' });
    await advance(20);
    t.strictSame(times(), [10, 20, 30, 40]);
    t.equal(asked[3]?.lease.expiresAt, 'lease 30');
    t.notOk(givenUp.settled);
    t.equal(await keeper.close(), undefined);
  },
);

t.test('cancelled work that stalls, or whose lease is lost, is given up like any other', async (t) => {
  const { keeper, advance } = setUp(
    { ttlSeconds: 30 },
    { by: (one) => (one.atSeconds < 20 ? renewed(one, { isCancelRequested: true }) : lost()) },
  );
  await advance(20);
  t.match(keeper.signal.reason, { code: 'cancelled' });
  t.match(await keeper.givenUp, { code: 'lease_lost' });
});

t.test('while the proof is pinned nothing renews it; what fell due is asked for right after', async (t) => {
  const { keeper, advance, asked, times } = setUp({ ttlSeconds: 30 }, { by: renewed });
  const gate = Promise.withResolvers<void>();
  const pinned = keeper.pin(async ({ lease }) => {
    await gate.promise;
    return lease.expiresAt;
  });
  await advance(15);
  t.equal(asked.length, 0);
  gate.resolve();
  t.equal(await pinned, 'lease 0');
  await advance(0);
  t.strictSame(times(), [15]);
});

t.test('a pin waits for a renewal under way, and gets the new proof', async (t) => {
  const { keeper, advance, asked } = setUp({ ttlSeconds: 30 });
  await advance(10);
  const pinned = watchPromise(keeper.pin(async ({ lease }) => lease.expiresAt));
  await turn();
  t.notOk(pinned.settled);
  const [renewal] = asked;
  if (renewal !== undefined) renewal.answer(renewed(renewal));
  await turn();
  t.match(pinned, { settled: true, value: 'lease 10' });
});

t.test('a pin that throws lets go of the proof; one that outlives the lease ends its trust', async (t) => {
  const { keeper, advance, times } = setUp({ ttlSeconds: 30 }, { by: renewed });
  await t.rejects(
    keeper.pin(() => Promise.reject(new Error('no'))),
    /no/,
  );
  await advance(10);
  t.strictSame(times(), [10]);
  const gate = Promise.withResolvers<void>();
  const pinned = keeper.pin(() => gate.promise);
  await advance(30);
  t.match(keeper.signal.reason, { code: 'lease_lost' });
  gate.resolve();
  await pinned;
  await advance(100);
  t.strictSame(times(), [10]);
});

t.test('a lease that was claimed for less than it is kept for is trusted for what it was claimed for', async (t) => {
  const { keeper, advance, times } = setUp({ ttlSeconds: 300 }, { claimedFor: 6 });
  await advance(5.9);
  t.strictSame(times(), [2], 'and renewed in a third of that');
  t.notOk(keeper.signal.aborted);
  await advance(0.1);
  t.match(keeper.signal.reason, { code: 'lease_lost' });
});

t.test('a lease that is kept some time after it was claimed is as old as it is', async (t) => {
  const { keeper, advance, times } = setUp({ ttlSeconds: 30 }, { age: 25 });
  await advance(0);
  t.strictSame(times(), [0], 'its tick has passed');
  await advance(4.9);
  t.notOk(keeper.signal.aborted);
  await advance(0.1);
  t.match(keeper.signal.reason, { code: 'lease_lost' });
});

t.test('bad options are refused by name', async (t) => {
  for (const ttlSeconds of [0, -1, 1.5, 86_401, Number.NaN]) {
    t.throws(() => setUp({ ttlSeconds }), { code: 'invalid_request', message: /^ttlSeconds must be/ }, `${ttlSeconds}`);
  }
  const stallSeconds = Number.NaN;
  t.throws(() => setUp({ ttlSeconds: 30, stallSeconds }), {
    code: 'invalid_request',
    message: /^stallSeconds must be/,
  });
});
