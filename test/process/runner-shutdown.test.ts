import t from 'tap';
import { type Claimed, createRunner, type HandlerContext } from '../../src/index.ts';
import { turn, watchPromise } from '../support/gates.ts';
import { until } from '../support/harness.ts';
import { claimed, EAGER, fakeStore, gettingOn, NEVER, processLane, startRunner } from '../support/runners.ts';

const gate = <Value = void>() => Promise.withResolvers<Value>();
const timers = () => process.getActiveResourcesInfo().filter((name) => name === 'Timeout').length;

t.test('while idle: it ends at once, and listens no more', async (t) => {
  let [listening, looks] = [0, 0];
  const store = fakeStore({
    onWork: () => {
      listening++;
      return () => void listening--;
    },
    claim: async () => {
      looks++;
      return null;
    },
  });
  const before = timers();
  const stopping = new AbortController();
  const run = createRunner({ store, handlers: { model_turn: async () => {} } }).run(stopping.signal);
  await until('a look', () => looks > 0);
  await turn();
  t.equal(listening, 1);
  stopping.abort();
  await run;
  t.equal(listening, 0);
  t.equal(looks, 1);
  t.equal(timers(), before, 'no timer is left');
});

t.test('while the store is away: it does not wait for the next try', async (t) => {
  const { promise: failed, resolve: fail } = gate();
  const store = fakeStore({
    claim: async () => {
      fail();
      throw new Error('away');
    },
  });
  const before = timers();
  const { stop, ended } = startRunner(t, { store, handlers: { model_turn: async () => {} } });
  await failed;
  await turn();
  const stoppedAt = performance.now();
  stop();
  await ended;
  t.ok(performance.now() - stoppedAt < 400, 'the next try would be after half a second or more');
  t.equal(timers(), before);
});

t.test('while a claim is in flight: what it brings is given back, its attempt unspent', async (t) => {
  const { queue, enqueue, row } = await processLane(t);
  const id = await enqueue('session');
  const { promise: claimedIt, resolve: claimIt } = gate();
  const { promise: held, resolve: letGo } = gate();
  const store = {
    ...queue,
    async claim(...given: Parameters<typeof queue.claim>) {
      const item = await queue.claim(...given);
      claimIt();
      await held;
      return item;
    },
  };
  const { stop, ended } = startRunner(t, { store, handlers: { model_turn: async () => void t.fail('run') }, ...NEVER });
  await claimedIt;
  t.match(await row(id), { state: 'active' });
  stop();
  const run = watchPromise(ended);
  await turn();
  t.notOk(run.settled, 'not before it is given back');
  letGo();
  await ended;
  t.match(await row(id), { state: 'queued', attempt: 1, hand_over_count: 0, lease_expires_at: null });
});

t.test('the grace is counted from the signal, also while a claim is in flight', async (t) => {
  const { promise: held, resolve: letGo } = gate<null>();
  const released: string[] = [];
  let claims = 0;
  const store = fakeStore({
    claim: () => (claims++ === 0 ? Promise.resolve(claimed(1)) : held),
    requeue: async ({ seq }) => {
      released.push(seq);
      return { state: 'queued', reason: null, nextAttemptAt: null, retryInMs: null };
    },
  });
  const handlers = { model_turn: () => new Promise<void>(() => {}) };
  const { stop, ended } = startRunner(t, { store, handlers, graceSeconds: 0, ...NEVER });
  await until('a claim in flight', () => claims === 2);
  stop();
  await until('the release', () => released.length > 0);
  letGo(null);
  await ended;
  t.strictSame(released, ['1']);
});

t.test('work that ends within the grace is settled; its lease is kept until then', async (t) => {
  const { queue, enqueue, row, written, write } = await processLane(t);
  const id = await enqueue('session');
  const left = await enqueue('left');
  const { promise: begun, resolve: begin } = gate();
  const { promise: work, resolve: finish } = gate();
  const { stop, ended } = startRunner(t, {
    store: queue,
    ...EAGER,
    concurrency: 1,
    graceSeconds: 60,
    handlers: {
      async model_turn(item, { signal, progress }) {
        begin();
        await gettingOn(progress, () => work);
        t.notOk(signal.aborted);
        return (transaction) => write(transaction, item);
      },
    },
  });
  await begun;
  stop();
  const lease = (await row(id)).lease_expires_at;
  await until('a renewal', async () => (await row(id)).lease_expires_at !== lease);
  const run = watchPromise(ended);
  await turn();
  t.notOk(run.settled);
  finish();
  await ended;
  t.match(await row(id), { state: 'stopped', stop_reason: 'worker' });
  t.strictSame(await written(), ['session done']);
  t.match(await row(left), { state: 'queued', hand_out_count: 0 }, 'nothing more is claimed');
});

t.test('work that outlives the grace is told, and released at once; its attempt is unspent', async (t) => {
  const { queue, enqueue, row, written, write } = await processLane(t);
  const ids = [await enqueue('listens'), await enqueue('ignores')];
  const begun: string[] = [];
  const reasons: unknown[] = [];
  const { promise: work, resolve: finish } = gate();
  const { promise: refused, resolve: refuse } = gate<unknown>();
  const { stop, ended } = startRunner(t, {
    store: queue,
    graceSeconds: 0,
    handlers: {
      async model_turn(item: Claimed, { signal, tx }: HandlerContext) {
        begun.push(item.sessionId);
        const aborted = new Promise((resolve) => signal.addEventListener('abort', resolve));
        if (item.sessionId === 'listens') {
          await aborted;
          reasons.push(signal.reason);
          signal.throwIfAborted();
        }
        await work;
        await tx((transaction) => write(transaction, item)).catch(refuse);
        return (transaction) => write(transaction, item);
      },
    },
    ...NEVER,
  });
  await until('both to run', () => begun.length === 2);
  stop();
  await ended;
  for (const id of ids)
    t.match(await row(id), { state: 'queued', attempt: 1, last_error: null, next_attempt_at: null });
  t.match(reasons, [{ name: 'AbortError' }]);
  t.match(await queue.claim('model_turn', { ttlSeconds: 60 }), { id: ids[0] }, 'due at once');
  finish();
  t.match(await refused, { code: 'lease_lost' }, 'what goes on after that writes nothing');
  t.strictSame(await written(), []);
});

t.test('while settling: it waits for the commit', async (t) => {
  const { queue, enqueue, row, written, write } = await processLane(t);
  const id = await enqueue('session');
  const { promise: begun, resolve: begin } = gate();
  const { promise: settlement, resolve: settle } = gate();
  const { stop, ended } = startRunner(t, {
    store: queue,
    graceSeconds: 0,
    handlers: {
      model_turn: async (item) => async (transaction) => {
        begin();
        await settlement;
        await write(transaction, item);
      },
    },
    ...NEVER,
  });
  await begun;
  stop();
  const run = watchPromise(ended);
  for (let n = 0; n < 5; n++) await turn();
  t.notOk(run.settled);
  settle();
  await ended;
  t.match(await row(id), { state: 'stopped', stop_reason: 'worker' });
  t.strictSame(await written(), ['session done']);
});

t.test('a settlement that never ends keeps nobody; what it does in the end is all or nothing', async (t) => {
  const { queue, enqueue, row, written, write } = await processLane(t);
  const id = await enqueue('session');
  const { promise: begun, resolve: begin } = gate();
  const { promise: settlement, resolve: settle } = gate();
  const { stop, ended, logged } = startRunner(t, {
    store: queue,
    handlers: {
      model_turn: async (item) => async (transaction) => {
        await write(transaction, item);
        begin();
        await settlement;
      },
    },
    ...NEVER,
  });
  await begun;
  stop();
  await ended;
  t.match(logged.at(-1), { message: /took too long/ });
  t.strictSame(await written(), []);
  t.match(await row(id), { state: 'active' });
  settle();
  await until('its commit', async () => (await row(id)).state === 'stopped');
  t.strictSame(await written(), ['session done']);
});

t.test('a settlement that the store does not answer is left when the grace is over', async (t) => {
  const items = [claimed(1)];
  let tries = 0;
  const store = fakeStore({
    claim: async () => items.shift() ?? null,
    async complete() {
      tries++;
      throw Object.assign(new Error('away'), { code: 'unavailable' });
    },
  });
  const before = timers();
  const { stop, ended, logged } = startRunner(t, { store, handlers: { model_turn: async () => {} } });
  await until('a try', () => tries > 0);
  const stoppedAt = performance.now();
  stop();
  await ended;
  t.ok(performance.now() - stoppedAt < 400, 'the next try would be after half a second or more');
  t.match(logged.at(-1), { message: /could not be settled in time/ });
  t.ok(tries <= 2);
  t.equal(timers(), before, 'no timer is left');
});

t.test('a release that fails ends the runner all the same', async (t) => {
  const items = [claimed(1), claimed(2)];
  const store = fakeStore({
    claim: async () => items.shift() ?? null,
    requeue: async ({ seq }) => {
      throw Object.assign(new Error('no'), seq === '1' ? { code: 'unavailable' } : {});
    },
  });
  const handlers = { model_turn: () => new Promise<void>(() => {}) };
  const before = timers();
  const { stop, ended, logged } = startRunner(t, { store, handlers });
  await until('both to run', () => items.length === 0);
  await turn();
  stop();
  await ended;
  t.equal(logged.length, 2);
  t.equal(timers(), before, 'no timer is left');
});

t.test('what runs twice stops twice: each run has a state of its own', async (t) => {
  const { queue, enqueue, untilStopped } = await processLane(t);
  const runner = createRunner({ store: queue, handlers: { model_turn: async () => {} } });
  for (const session of ['first', 'second']) {
    const stopping = new AbortController();
    const run = runner.run(stopping.signal);
    await untilStopped(await enqueue(session));
    stopping.abort();
    await run;
  }
});
