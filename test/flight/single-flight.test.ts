import t, { type Test } from 'tap';
import { type FlightContext, type SingleFlightOptions, singleFlight } from '../../src/flight/single-flight.ts';
import type { LockStore } from '../../src/flight/store.ts';
import { handClock, lockDesk } from '../support/flights.ts';

/** One call, what it left, and whoever asks for it. */
function scene() {
  const time = handClock();
  const { desk, store } = lockDesk(time.clock);
  let left: string | undefined;
  let owners = 0;
  const runs: (FlightContext & { finish(result: string): void; fail(error: Error): void })[] = [];
  const run = (context: FlightContext) => {
    const { promise, resolve, reject } = Promise.withResolvers<string>();
    const finish = (result: string) => {
      left = result;
      resolve(result);
    };
    runs.push({ ...context, finish, fail: reject });
    return promise;
  };
  const ask = (options: Partial<SingleFlightOptions<string>> = {}, through: LockStore = store) => {
    const answer = singleFlight(
      through,
      'call',
      `owner ${++owners}`,
      { check: () => left, run, ...options },
      time.clock,
    );
    answer.catch(() => {}); // a test looks later
    return answer;
  };
  const leave = (result: string) => {
    left = result;
  };
  return { ...time, desk, store, runs, ask, leave };
}

/** Nothing is left behind: no timer, no listener, no lock. */
function checkOver(t: Test, { timers, desk }: ReturnType<typeof scene>): void {
  t.equal(timers(), 0, 'no timer is left');
  t.equal(desk.listeners.size, 0, 'nobody listens any more');
  t.equal(desk.liveOf('call'), undefined, 'the lock is free');
}

t.test('what is there already is answered without a lock', async (t) => {
  const there = scene();
  there.leave('from before');
  t.equal(await there.ask(), 'from before');
  t.same(there.desk.calls, []);
  checkOver(t, there);
});

t.test('of fifty that ask, one runs, and all get what it left, as soon as it lets go', async (t) => {
  const there = scene();
  const answers = Array.from({ length: 50 }, () => there.ask());
  await there.settle();
  t.equal(there.runs.length, 1);
  await there.pass(1_000);
  there.runs[0]?.finish('made');
  t.same(await Promise.all(answers), Array(50).fill('made'));
  t.equal(there.desk.calls.filter((call) => call === 'acquire').length, 50, 'nobody takes a lock for what is there');
  t.equal(there.runs.length, 1);
  checkOver(t, there);
});

t.test('what was left between the look and the lock is found under it, and nothing runs', async (t) => {
  const there = scene();
  there.desk.before = async (verb) => void (verb === 'acquire' && there.leave('a moment ago'));
  t.equal(await there.ask(), 'a moment ago');
  t.equal(there.runs.length, 0);
  checkOver(t, there);
});

t.test('the lock is renewed by thirds while the call runs, however long', async (t) => {
  const there = scene();
  const answer = there.ask({ ttlSeconds: 30 });
  await there.pass(9_999);
  t.same(there.desk.calls, ['acquire']);
  await there.pass(1);
  t.same(there.desk.calls, ['acquire', 'renew']);
  await there.pass(300_000);
  t.equal(there.runs[0]?.signal.aborted, false);
  t.equal(there.desk.calls.length, 32);
  there.runs[0]?.finish('late');
  t.equal(await answer, 'late');
  checkOver(t, there);
});

t.test('a holder that falls silent is waited for until its lock has expired, and no longer', async (t) => {
  const there = scene();
  await there.store.acquire('call', 'a dead one', 20);
  const answer = there.ask();
  await there.pass(19_999);
  t.equal(there.runs.length, 0);
  await there.pass(1);
  t.equal(there.runs.length, 1);
  t.equal(there.runs[0]?.token, 2, 'under a higher token');
  there.runs[0]?.finish('taken over');
  t.equal(await answer, 'taken over');
  checkOver(t, there);
});

t.test('a release that comes while the lock is being asked for is not missed', async (t) => {
  const there = scene();
  const { token = 0 } = await there.store.acquire('call', 'another', 60);
  // The answer says that it is held; the release comes before whoever asked hears that.
  const store: LockStore = {
    ...there.store,
    async acquire(...asked) {
      const attempt = await there.store.acquire(...asked);
      if (attempt.token === undefined) await there.store.release('call', token, AbortSignal.abort());
      return attempt;
    },
  };
  const answer = there.ask({}, store);
  await there.settle();
  t.equal(there.runs.length, 1, 'at once');
  there.runs[0]?.finish('made');
  await answer;
  checkOver(t, there);
});

t.test('who hears of a release that another was quicker to use waits on', async (t) => {
  const there = scene();
  const { token = 0 } = await there.store.acquire('call', 'another', 60);
  const answer = there.ask();
  await there.settle();
  there.desk.before = async (verb) => {
    if (verb !== 'acquire') return;
    there.desk.before = async () => {};
    await there.store.acquire('call', 'a quick one', 60);
  };
  await there.store.release('call', token, AbortSignal.abort());
  await there.pass(59_000);
  t.same(there.desk.calls.filter((call) => call === 'acquire').length, 4, 'two of each');
  await there.pass(1_000);
  there.runs[0]?.finish('made');
  t.equal(await answer, 'made');
  checkOver(t, there);
});

t.test('who is not told of releases asks again, by more than a second to five at most', async (t) => {
  const there = scene();
  const { token = 0 } = await there.store.acquire('call', 'another', 3_600);
  const deaf: LockStore = { ...there.store, isTold: () => false };
  const answer = there.ask({}, deaf);
  await there.pass(60_000);
  const asked = there.desk.calls.filter((call) => call === 'acquire').length;
  t.ok(asked >= 14 && asked <= 35, `asked ${asked} times in a minute`);
  await there.store.release('call', token, AbortSignal.abort());
  await there.pass(5_000);
  t.equal(there.runs.length, 1, 'within five seconds');
  there.runs[0]?.finish('made');
  await answer;
  checkOver(t, there);
});

t.test('an error of the call, or of a look, comes out, and the next one runs', async (t) => {
  const there = scene();
  const [first, second] = [there.ask(), there.ask()];
  await there.settle();
  there.runs[0]?.fail(new Error('too expensive'));
  await t.rejects(first, { message: 'too expensive' });
  await there.settle();
  t.equal(there.runs.length, 2);
  there.runs[1]?.finish('made');
  t.equal(await second, 'made');

  let looks = 0;
  const failing = there.ask({
    check() {
      if (++looks === 2) throw new Error('the look under the lock failed');
      return undefined;
    },
  });
  await t.rejects(failing, { message: 'the look under the lock failed' });
  checkOver(t, there);
});

t.test('a lock that another took aborts the call with LockLost, and is not let go', async (t) => {
  const there = scene();
  const answer = there.ask({ ttlSeconds: 30 });
  await there.settle();
  there.desk.drop('call');
  await there.store.acquire('call', 'a thief', 600);
  await there.pass(10_000);
  t.match(there.runs[0]?.signal, { aborted: true, reason: { name: 'LockLost', code: 'lock_lost' } });
  there.runs[0]?.fail(new Error('stopped'));
  await t.rejects(answer, { message: 'stopped' });
  t.match(there.desk.liveOf('call'), { owner: 'a thief' });
  t.equal(there.timers(), 0);
});

t.test('without an answer to a renewal the trust ends a TTL after the last one that was answered', async (t) => {
  const there = scene();
  const answer = there.ask({ ttlSeconds: 30 });
  await there.pass(10_000);
  there.desk.before = () => new Promise(() => {});
  await there.pass(29_999);
  t.equal(there.runs[0]?.signal.aborted, false);
  await there.pass(1);
  t.match(there.runs[0]?.signal.reason, { name: 'LockLost' });
  there.runs[0]?.finish('all the same');
  t.equal(await answer, 'all the same', 'what was paid for is answered');
  t.equal(there.timers(), 0);
});

t.test('a renewal that failed is asked for again at the next third, and keeps the lock', async (t) => {
  const there = scene();
  const answer = there.ask({ ttlSeconds: 30 });
  await there.settle();
  there.desk.before = async () => {
    throw new Error('unreachable');
  };
  await there.pass(15_000);
  there.desk.before = async () => {};
  await there.pass(60_000);
  t.equal(there.runs[0]?.signal.aborted, false);
  there.runs[0]?.finish('made');
  await answer;
  checkOver(t, there);
});

t.test('a renewal whose answer comes when all is over changes nothing', async (t) => {
  const there = scene();
  const gate = Promise.withResolvers<void>();
  const slow: LockStore = {
    ...there.store,
    async renew(...asked) {
      const lastsMs = await there.store.renew(...asked);
      await gate.promise;
      return lastsMs;
    },
  };
  const answer = there.ask({ ttlSeconds: 30 }, slow);
  await there.pass(10_000);
  there.runs[0]?.finish('made');
  t.equal(await answer, 'made');
  gate.resolve();
  await there.settle();
  checkOver(t, there);
});

t.test('a release that is not answered is waited for until the lock has expired', async (t) => {
  const there = scene();
  const answer = there.ask({ ttlSeconds: 30 });
  await there.settle();
  there.desk.before = () => new Promise(() => {});
  there.runs[0]?.finish('made');
  let isOver = false;
  void answer.then(() => {
    isOver = true;
  });
  await there.pass(29_999);
  t.equal(isOver, false);
  await there.pass(1);
  t.equal(isOver, true);
  checkOver(t, there);
});

t.test("the caller's signal ends the wait with its reason, and aborts a call that runs", async (t) => {
  const there = scene();
  const reason = new Error('no longer wanted');
  const [running, waiting] = [new AbortController(), new AbortController()];
  const first = there.ask({ signal: running.signal });
  await there.settle();
  const second = there.ask({ signal: waiting.signal });
  await there.settle();
  waiting.abort(reason);
  await t.rejects(second, reason);
  t.equal(there.desk.listeners.size, 1, 'of the one that runs');
  running.abort(reason);
  t.equal(there.runs[0]?.signal.reason, reason);
  there.runs[0]?.fail(reason);
  await t.rejects(first, reason);
  const { length } = there.desk.calls;
  await t.rejects(there.ask({ signal: AbortSignal.abort(reason) }), reason);
  t.equal(there.desk.calls.length, length, 'who has left already asks nothing');
  t.equal(there.runs.length, 1);
  checkOver(t, there);
});

t.test('a lock that comes when its caller has left is let go at once', async (t) => {
  const there = scene();
  const reason = new Error('no longer wanted');
  const gate = Promise.withResolvers<void>();
  there.desk.before = (verb) => (verb === 'acquire' ? gate.promise : Promise.resolve());
  const leaving = new AbortController();
  const answer = there.ask({ signal: leaving.signal });
  await there.settle();
  leaving.abort(reason);
  await t.rejects(answer, reason);
  gate.resolve();
  await there.settle();
  t.same(there.desk.calls, ['acquire', 'release']);
  t.equal(there.runs.length, 0);
  checkOver(t, there);
});

t.test('what the store throws when it is asked comes out', async (t) => {
  const there = scene();
  there.desk.before = async () => {
    throw new Error('unreachable');
  };
  await t.rejects(there.ask(), { message: 'unreachable' });
  checkOver(t, there);
});
