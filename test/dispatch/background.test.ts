import { mock } from 'node:test';
import t, { type Test } from 'tap';
import { calmly } from '../../src/dispatch/calmly.ts';
import { startInterval } from '../../src/dispatch/interval.ts';
import { createNotifier } from '../../src/dispatch/notifier.ts';
import { createRefusals } from '../../src/dispatch/refusals.ts';
import { createSightings } from '../../src/dispatch/sightings.ts';
import { turn, watchPromise } from '../support/gates.ts';

/** The test moves the clock. */
function ownClock(t: Test): (ms: number) => Promise<void> {
  mock.timers.enable({ apis: ['setTimeout'] });
  t.teardown(() => mock.timers.reset());
  return async (ms) => {
    mock.timers.tick(ms);
    await turn();
  };
}

t.test('notifier: the first goes out at once, those within the window become one at its end', async (t) => {
  const pass = ownClock(t);
  const sent: string[] = [];
  const notifier = createNotifier({ send: async (environmentId) => void sent.push(environmentId), debounceMs: 20 });
  notifier.tell('one');
  t.same(sent, ['one']);
  for (let n = 0; n < 5; n++) notifier.tell('one');
  notifier.tell('two');
  t.same(sent, ['one', 'two'], 'environments do not wait for one another');
  await pass(19);
  t.equal(sent.length, 2);
  await pass(1);
  t.same(sent, ['one', 'two', 'one'], 'nothing trails where nothing was added');
  notifier.tell('one');
  t.equal(sent.length, 3, 'the trailing one opened a window, too');
  await pass(20);
  await pass(20);
  t.equal(sent.length, 4);
  notifier.tell('one');
  t.equal(sent.length, 5, 'after a quiet window the next goes out at once');
  await notifier.close();
});

t.test('notifier: one that fails is forgotten, the next goes out', async (t) => {
  const pass = ownClock(t);
  const sent: string[] = [];
  const notifier = createNotifier({
    async send(environmentId) {
      sent.push(environmentId);
      if (sent.length === 1) throw new Error('the database is gone');
    },
    debounceMs: 20,
  });
  notifier.tell('one');
  await pass(20);
  notifier.tell('one');
  t.same(sent, ['one', 'one']);
  await notifier.close();
});

t.test('notifier: close waits for what is on its way and sends nothing after', async (t) => {
  const pass = ownClock(t);
  const { promise, resolve } = Promise.withResolvers<void>();
  let sent = 0;
  const notifier = createNotifier({
    send() {
      sent++;
      return promise;
    },
    debounceMs: 20,
  });
  notifier.tell('one');
  notifier.tell('one');
  const closed = watchPromise(notifier.close());
  await pass(20);
  t.equal(sent, 1);
  t.notOk(closed.settled);
  resolve();
  await turn();
  t.ok(closed.settled);
});

t.test('sightings: a worker is written once a flush, however often it polled', async (t) => {
  const pass = ownClock(t);
  const written: string[][] = [];
  const sightings = createSightings({
    record: async (seen) => void written.push(seen.map((s) => `${s.environmentId}/${s.workerId}`)),
    flushIntervalMs: 100,
    workersMax: 3,
  });
  for (const worker of ['a', 'b', 'a', null, 'a']) sightings.note('env', worker);
  await pass(99);
  t.same(written, []);
  await pass(1);
  t.same(written, [['env/a', 'env/b']]);
  await pass(1_000);
  t.equal(written.length, 1, 'nothing seen, nothing written');
  for (const worker of ['a', 'b', 'c', 'd', 'a']) sightings.note('env', worker);
  await sightings.flush();
  t.same(written[1], ['env/a', 'env/b', 'env/c'], 'no more than the bound');
});

t.test('sightings: a failed write is forgotten, the next one is made', async (t) => {
  const pass = ownClock(t);
  let writes = 0;
  const sightings = createSightings({
    async record() {
      writes++;
      if (writes === 1) throw new Error('the database is gone');
    },
    flushIntervalMs: 100,
  });
  sightings.note('env', 'worker');
  await t.resolves(sightings.flush());
  sightings.note('env', 'worker');
  await pass(100);
  t.equal(writes, 2);
});

t.test('sightings: a flush ends only when what an earlier one took is written', async (t) => {
  ownClock(t);
  const { promise, resolve } = Promise.withResolvers<void>();
  const sightings = createSightings({ record: () => promise });
  sightings.note('env', 'worker');
  const flushes = [sightings.flush(), sightings.flush()].map(watchPromise);
  await turn();
  t.same(flushes, [{ settled: false }, { settled: false }]);
  resolve();
  await turn();
  t.match(flushes, [{ settled: true }, { settled: true }]);
});

t.test('refusals: counted by environment and kind, written once a flush, no more than the bound', async (t) => {
  const pass = ownClock(t);
  const written: string[][] = [];
  const refusals = createRefusals({
    record: async (refused) => void written.push(refused.map((r) => `${r.environmentId}/${r.refusal} ${r.count}`)),
    flushIntervalMs: 100,
    entriesMax: 3,
  });
  for (const refusal of ['credential', 'heartbeat', 'credential'] as const) refusals.note('a', refusal);
  refusals.note('b', 'credential');
  refusals.note('c', 'credential');
  refusals.note('b', 'credential');
  await pass(99);
  t.same(written, []);
  await pass(1);
  t.same(written, [['a/credential 2', 'a/heartbeat 1', 'b/credential 2']]);
  refusals.note('c', 'credential');
  await refusals.flush();
  t.same(written[1], ['c/credential 1'], 'what is written is not counted again');
});

t.test('refusals: a failed write is forgotten, the next one is made', async (t) => {
  const counts: number[] = [];
  const refusals = createRefusals({
    async record([refused]) {
      counts.push(refused?.count ?? 0);
      if (counts.length === 1) throw new Error('the database is gone');
    },
  });
  refusals.note('env', 'heartbeat');
  await t.resolves(refusals.flush());
  refusals.note('env', 'heartbeat');
  await refusals.flush();
  t.same(counts, [1, 1]);
});

t.test('interval: runs never overlap; the next is due an interval after the last one ended', async (t) => {
  const pass = ownClock(t);
  const runs: PromiseWithResolvers<void>[] = [];
  const interval = startInterval(
    () => {
      const run = Promise.withResolvers<void>();
      runs.push(run);
      return run.promise;
    },
    100,
    () => {},
  );
  t.equal(runs.length, 0, 'not at once');
  await pass(100);
  await pass(1_000);
  t.equal(runs.length, 1, 'not while one is under way');
  runs[0]?.resolve();
  await turn();
  await pass(99);
  t.equal(runs.length, 1);
  await pass(1);
  t.equal(runs.length, 2);
  const closed = watchPromise(interval.close());
  await turn();
  t.notOk(closed.settled, 'close waits for the run that is under way');
  runs[1]?.resolve();
  await turn();
  t.ok(closed.settled);
  await pass(1_000);
  t.equal(runs.length, 2, 'and there is none after');
});

t.test('interval: a run that fails is told and does not end the loop', async (t) => {
  const pass = ownClock(t);
  const faults: unknown[] = [];
  let runs = 0;
  const interval = startInterval(
    async () => {
      runs++;
      throw new Error(`run ${runs}`);
    },
    100,
    (error) => faults.push(error),
  );
  await pass(100);
  await pass(100);
  t.match(faults, [{ message: 'run 1' }, { message: 'run 2' }]);
  await interval.close();
});

t.test('interval: a run under way is told that it is closing', async (t) => {
  const pass = ownClock(t);
  const run = Promise.withResolvers<void>();
  let told: AbortSignal | undefined;
  const interval = startInterval(
    (closing) => {
      told = closing;
      return run.promise;
    },
    100,
    () => {},
  );
  await pass(100);
  t.equal(told?.aborted, false);
  const closed = interval.close();
  t.equal(told?.aborted, true);
  run.resolve();
  await closed;
});

t.test(
  'calmly: after a step it rests four times as long as the step took; the last one is followed by none',
  async (t) => {
    const pass = ownClock(t);
    let [ms, steps] = [0, 0];
    const done = watchPromise(
      calmly(
        async () => {
          ms += 10;
          return { more: ++steps < 3 };
        },
        new AbortController().signal,
        () => ms,
      ),
    );
    await turn();
    t.equal(steps, 1, 'the first at once');
    await pass(39);
    t.equal(steps, 1);
    await pass(1);
    t.equal(steps, 2);
    await pass(40);
    t.equal(steps, 3);
    t.ok(done.settled);
  },
);

t.test('calmly: closing ends a rest and begins no step; a failure ends it, told to the caller', async (t) => {
  ownClock(t);
  const closing = new AbortController();
  let steps = 0;
  const step = async () => ({ more: ++steps > 0 });
  const done = watchPromise(calmly(step, closing.signal, () => steps * 1_000));
  await turn();
  t.equal(steps, 1);
  t.notOk(done.settled, 'it rests');
  closing.abort();
  await turn();
  t.ok(done.settled);
  await calmly(step, closing.signal);
  t.equal(steps, 1);
  await t.rejects(
    calmly(() => Promise.reject(new Error('no')), new AbortController().signal),
    { message: 'no' },
  );
});
