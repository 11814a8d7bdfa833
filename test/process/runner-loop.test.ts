import t from 'tap';
import { type Claimed, createQueue, createRunner, type RunnerOptions } from '../../src/index.ts';
import { turn, watchPromise } from '../support/gates.ts';
import { testDatabase, until } from '../support/harness.ts';
import { claimed, EAGER, fakeStore, gettingOn, NEVER, processLane, startRunner } from '../support/runners.ts';

const gate = <Value = void>() => Promise.withResolvers<Value>();

t.test('an enqueue wakes a runner of the same queue, and one of another queue that listens', async (t) => {
  const { database, environmentId, enqueue, untilStopped } = await processLane(t);
  const other = await testDatabase(t, 'postgres', { schema: database.schema });
  const listening = createQueue({ database: other });
  t.teardown(() => listening.close());
  listening.start();
  await until('it to listen', () => listening.isListening());
  let looks = 0;
  const store = {
    ...listening,
    claim: (...given: Parameters<typeof listening.claim>) => {
      looks++;
      return listening.claim(...given);
    },
  };
  startRunner(t, { store, handlers: { model_turn: async () => {} }, ...NEVER });
  await until('it to find nothing', () => looks > 0);
  for (let n = 0; n < 3; n++) await untilStopped(await enqueue(`elsewhere ${n}`));
  const { item } = await listening.enqueue({
    environmentId,
    sessionId: 'here',
    kind: 'model_turn',
  });
  await untilStopped(item.id);
});

t.test('work of another kind wakes nobody', async (t) => {
  const { queue, enqueue } = await processLane(t);
  const woken: string[] = [];
  const stop = queue.onWork(['model_turn', 'mcp_exec'], () => woken.push('woken'));
  await enqueue('session', 'web_exec');
  t.strictSame(woken, []);
  await enqueue('session', 'mcp_exec');
  t.strictSame(woken, ['woken']);
  stop();
  await enqueue('session', 'model_turn');
  t.strictSame(woken, ['woken']);
});

t.test('kinds take turns, also where only one item runs at once', async (t) => {
  const { queue, enqueue, untilStopped } = await processLane(t);
  const ids: string[] = [];
  for (const kind of ['model_turn', 'web_exec', 'mcp_exec'] as const) {
    for (let n = 0; n < 3; n++) ids.push(await enqueue(`${n}`, kind));
  }
  const done: string[] = [];
  const handler = async ({ kind }: Claimed) => void done.push(kind);
  const handlers = { model_turn: handler, web_exec: handler, mcp_exec: handler };
  startRunner(t, { store: queue, concurrency: 1, handlers, ...NEVER });
  for (const id of ids) await untilStopped(id);
  for (let n = 0; n < 9; n += 3) t.equal(new Set(done.slice(n, n + 3)).size, 3, `${done}`);
});

t.test('a settlement that hangs keeps its place for no longer than its lease', async (t) => {
  const short = claimed(1);
  const items = [{ ...short, lease: { ...short.lease, askedAtMs: performance.now(), ttlSeconds: 0.05 } }, claimed(2)];
  const begun: string[] = [];
  const store = fakeStore({
    claim: async () => items.shift() ?? null,
    transaction: (run) => run({ query: async () => ({ rows: [] }) } as never),
    complete: async () => ({ state: 'stopped', reason: 'worker', nextAttemptAt: null, retryInMs: null }),
  });
  const { logged } = startRunner(t, {
    store,
    concurrency: 1,
    handlers: {
      async model_turn({ id }) {
        begun.push(id);
        return id === 'work_1' ? () => new Promise(() => {}) : undefined;
      },
    },
    ...NEVER,
  });
  await until('the next to begin', () => begun.length === 2);
  t.match(logged, [{ details: { work: 'work_1' }, message: /took too long/ }]);
});

t.test('what goes wrong is told on the console where no logger is given; what does not is not', async (t) => {
  const { queue, environmentId, enqueue, untilStopped } = await processLane(t);
  const told = { warn: t.capture(console, 'warn', () => {}), error: t.capture(console, 'error', () => {}) };
  const handlers = { model_turn: () => Promise.reject(new Error('no model')), web_exec: async () => {} };
  startRunner(t, { store: queue, handlers, ...NEVER, logger: undefined });
  const { item } = await queue.enqueue({ environmentId, sessionId: 'vain', kind: 'model_turn', maxAttempts: 1 });
  await untilStopped(item.id, 'failed');
  await untilStopped(await enqueue('fine', 'web_exec'));
  const [warning, ...more] = told.warn();
  t.match(warning?.args, [/work of an item failed/, { work: item.id, attempt: 1, state: 'stopped', reason: 'failed' }]);
  t.strictSame([...more, ...told.error()], []);
});

t.test('that a cancelled item ends is no failure to warn of', async (t) => {
  const { queue, enqueue, untilStopped, environmentId } = await processLane(t);
  const begun = gate();
  const handlers = {
    async model_turn(_: Claimed, { signal, progress }: { signal: AbortSignal; progress(): void }) {
      begun.resolve();
      await gettingOn(progress, () => new Promise((resolve) => signal.addEventListener('abort', resolve)));
      signal.throwIfAborted();
    },
  };
  const levels: string[] = [];
  const logger = {
    info: (_: object, message: string) => void levels.push(`info ${message}`),
    warn: (_: object, message: string) => void levels.push(`warn ${message}`),
    error: (_: object, message: string) => void levels.push(`error ${message}`),
  };
  startRunner(t, { store: queue, handlers, ...NEVER, ...EAGER, logger });
  const id = await enqueue('cancelled');
  await begun.promise;
  await queue.requestCancel({ environmentId, id });
  await untilStopped(id, 'cancelled');
  t.strictSame(levels, ['info the work of an item was cancelled']);
});

t.test('what is put in during a look is looked for after it', async (t) => {
  const { queue, enqueue, untilStopped } = await processLane(t);
  const { promise: looked, resolve: look } = gate();
  const { promise: held, resolve: letGo } = gate();
  const store = {
    ...queue,
    async claim(...given: Parameters<typeof queue.claim>) {
      const item = await queue.claim(...given);
      look();
      await held;
      return item;
    },
  };
  startRunner(t, { store, handlers: { model_turn: async () => {} }, ...NEVER });
  await looked;
  const id = await enqueue('session');
  letGo();
  await untilStopped(id);
});

t.test('without a wake-up the backstop finds it', async (t) => {
  const { queue, enqueue, untilStopped } = await processLane(t);
  const store = { ...queue, onWork: () => () => {} };
  startRunner(t, { store, handlers: { model_turn: async () => {} }, ...NEVER, backstopMs: 10 });
  await untilStopped(await enqueue('session'));
});

t.test(
  'a store that is away is asked at most twice a second, with jitter, and work goes on when it is back',
  async (t) => {
    const asked: number[] = [];
    let isAway = true;
    const away = async () => {
      asked.push(performance.now());
      if (isAway) throw new Error('away');
      return null;
    };
    const store = fakeStore({ claim: away, expired: async () => (await away()) ?? [] });
    const { logged } = startRunner(t, {
      store,
      handlers: { model_turn: async () => {}, web_exec: async () => {} },
      sweepIntervalMs: 10,
      backstopMs: 10,
    });
    await until('five tries', () => asked.length >= 5);
    const gaps = asked.slice(1).map((at, n) => at - (asked[n] ?? 0));
    t.ok(
      gaps.every((gap) => gap >= 498 && gap < 1_500),
      `${gaps}`,
    );
    t.ok(new Set(gaps.map((gap) => Math.round(gap / 5))).size > 1, 'not in step');
    t.match(logged[0], { message: 'looking for work failed', details: { err: { message: 'away' } } });
    isAway = false;
    const before = asked.length;
    await until('all of it again', () => asked.length > before + 5);
  },
);

t.test('a settlement that the store does not answer is tried again, while the lease lives', async (t) => {
  const unavailable = Object.assign(new Error('away'), { code: 'unavailable' });
  const item = claimed(1);
  const items = [item];
  let tries = 0;
  const store = fakeStore({
    claim: async () => items.shift() ?? null,
    async complete() {
      if (++tries < 3) throw unavailable;
      return { state: 'stopped', reason: 'worker', nextAttemptAt: null, retryInMs: null };
    },
  });
  const { stop, ended, logged } = startRunner(t, { store, handlers: { model_turn: async () => {} }, graceSeconds: 10 });
  await until('the first try', () => tries > 0);
  stop();
  await ended;
  t.equal(tries, 3);
  t.strictSame(logged, []);
});

t.test('wrong options are refused by name', async (t) => {
  const good = { store: fakeStore(), handlers: { model_turn: async () => {} } };
  const cells: [field: string, wrong: unknown[]][] = [
    ['concurrency', [0, -1, 1.5, 1_001, Number.NaN, '4']],
    ['ttlSeconds', [0, 86_401, 1.5, '60']],
    ['stallSeconds', [Number.NaN, '10', null]],
    ['sweepIntervalMs', [0, 9, 3_600_001, Number.NaN]],
    ['backstopMs', [0, 9, 3_600_001, Number.NaN]],
    ['graceSeconds', [-1, 86_401, 0.5]],
    ['workerId', ['', 'x'.repeat(257), 7]],
    ['onReclaimed', ['run', null]],
    ['handlers', [undefined, null, {}, { model_turn: undefined }, { toString() {} }, { modelTurn: async () => {} }]],
  ];
  for (const [field, wrong] of cells) {
    for (const value of wrong) {
      t.throws(
        () => createRunner({ ...good, [field]: value } as RunnerOptions),
        { code: 'invalid_request', message: new RegExp(`^${field} must `) },
        `${field}: ${value}`,
      );
    }
  }
  for (const value of [null, 'x', {}]) {
    t.throws(() => createRunner({ ...good, handlers: { model_turn: value } } as unknown as RunnerOptions), {
      code: 'invalid_request',
      message: 'handlers.model_turn must be a function',
    });
  }
  t.doesNotThrow(() => createRunner({ ...good, stallSeconds: -1, graceSeconds: 0, workerId: undefined }));
});

t.test('a run whose signal has aborted already claims nothing and ends', async (t) => {
  const runner = createRunner({
    store: fakeStore({ claim: async () => t.fail('claimed') as never }),
    handlers: { model_turn: async () => {} },
  });
  await runner.run(AbortSignal.abort());
  const idle = createRunner({ store: fakeStore(), handlers: { model_turn: async () => {} } });
  const stopping = new AbortController();
  const run = watchPromise(idle.run(stopping.signal));
  await turn();
  t.notOk(run.settled);
  stopping.abort();
  await turn();
  t.ok(run.settled);
});
