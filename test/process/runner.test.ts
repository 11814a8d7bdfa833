import { sql, type Transaction } from 'kysely';
import t from 'tap';
import type { Claimed, HandlerContext } from '../../src/index.ts';
import { turn } from '../support/gates.ts';
import { lapse, until } from '../support/harness.ts';
import { claimed, EAGER, fakeStore, gettingOn, NEVER, processLane, startRunner } from '../support/runners.ts';

const gate = <Value = void>() => Promise.withResolvers<Value>();

t.test('each kind is done by its own handler; what there is none for is left', async (t) => {
  const { queue, enqueue, row, untilStopped } = await processLane(t);
  const seen: string[] = [];
  const see = async ({ kind, sessionId, attempt, isReclaimed }: Claimed) => {
    seen.push(`${kind} ${sessionId} ${attempt} ${isReclaimed}`);
  };
  startRunner(t, { store: queue, handlers: { model_turn: see, mcp_exec: see, tool_exec: see } });
  const turnId = await enqueue('a', 'model_turn');
  const mcpId = await enqueue('a', 'mcp_exec');
  const toolId = await enqueue('b', 'tool_exec');
  const webId = await enqueue('a', 'web_exec');
  for (const id of [turnId, mcpId, toolId]) await untilStopped(id);
  t.strictSame(seen.sort(), ['mcp_exec a 1 false', 'model_turn a 1 false', 'tool_exec b 1 false']);
  t.match(await row(webId), { state: 'queued', hand_out_count: 0 });
});

t.test('a handler gets all that it needs', async (t) => {
  const { queue, enqueue, untilStopped, environmentId, written, write, row } = await processLane(t);
  const fetch = async () => new Response('fetched');
  const logged: unknown[] = [];
  const log = (details: object, message: string) => void logged.push({ details, message });
  const { promise: next, resolve } = gate<string>();
  startRunner(t, {
    store: queue,
    fetch,
    logger: { info: log, warn: log, error: log },
    workerId: 'worker-7',
    handlers: {
      async model_turn(item, { signal, progress, tx, enqueue, fetch, logger }) {
        t.notOk(signal.aborted);
        progress();
        logger.info({ id: item.id }, await (await fetch('http://nowhere')).text());
        t.equal(item.lease.workerId, 'worker-7');
        t.strictSame(item.input, { n: 1 });
        const answer = await tx(async (transaction) => {
          await write(transaction, item, 'in between');
          const { item: made } = await enqueue({ environmentId, sessionId: 'next', kind: 'web_exec' }, transaction);
          return made.id;
        });
        resolve(answer);
      },
    },
  });
  const { item } = await queue.enqueue({ environmentId, sessionId: 'first', kind: 'model_turn', input: { n: 1 } });
  await untilStopped(item.id);
  t.match(await row(await next), { state: 'queued', kind: 'web_exec' });
  t.strictSame(await written(), ['first in between']);
  t.strictSame(logged, [{ details: { id: item.id }, message: 'fetched' }]);
  t.equal(await enqueue('next', 'web_exec'), await next);
});

t.test('no more items than the concurrency run at once, and the next begins when one has ended', async (t) => {
  const { queue, enqueue, untilStopped } = await processLane(t);
  const ids: string[] = [];
  for (let n = 0; n < 6; n++) ids.push(await enqueue(`${n}`, n % 2 === 0 ? 'model_turn' : 'web_exec'));
  const gates: (() => void)[] = [];
  let [running, most] = [0, 0];
  const handler = async () => {
    most = Math.max(most, ++running);
    const { promise, resolve } = gate();
    gates.push(resolve);
    await promise;
    running--;
  };
  startRunner(t, { store: queue, concurrency: 2, handlers: { model_turn: handler, web_exec: handler }, ...NEVER });
  for (let n = 0; n < 6; n++) {
    await until('as many as may to run', () => gates.length === Math.min(n + 2, 6));
    gates[n]?.();
  }
  for (const id of ids) await untilStopped(id);
  t.equal(most, 2);
});

t.test('what the sweep finds and what is claimed count together', async (t) => {
  const begun: string[] = [];
  const { promise: work, resolve: finish } = gate();
  const lease = claimed(1).lease;
  let [claims, sweeps] = [0, 0];
  const store = fakeStore({
    expired: async () => {
      sweeps++;
      return [{ ...lease, id: 'work_1', environmentId: 'e', kind: 'model_turn' }];
    },
    // Both answer late: each would find a place free if it looked while the other waits.
    reclaim: async () => {
      await turn();
      return claimed(1, { isReclaimed: true });
    },
    claim: async () => {
      claims++;
      await turn();
      return claimed(2);
    },
    complete: async () => ({ state: 'stopped', reason: 'worker', nextAttemptAt: null, retryInMs: null }),
  });
  const handlers = {
    model_turn: async ({ id }: Claimed) => {
      begun.push(id);
      await work;
    },
  };
  const { stop, ended } = startRunner(t, { store, concurrency: 1, handlers, sweepIntervalMs: 10, graceSeconds: 10 });
  await until('a sweep', () => sweeps > 0);
  for (let n = 0; n < 20; n++) await turn();
  t.equal(begun.length, 1);
  t.ok(claims <= 1);
  stop();
  finish();
  await ended;
});

t.test('a settlement commits with the completion', async (t) => {
  const { queue, enqueue, written, write, row, untilStopped } = await processLane(t);
  const id = await enqueue('session');
  let during: unknown;
  startRunner(t, {
    store: queue,
    handlers: {
      model_turn: async (item) => async (transaction) => {
        await write(transaction, item);
        during = { written: await written(), state: (await row(id)).state };
      },
    },
  });
  await untilStopped(id);
  t.strictSame(during, { written: [], state: 'active' }, 'nobody saw either before');
  t.strictSame(await written(), ['session done']);
});

t.test('a settlement may use tables of its own by their types', async (t) => {
  const { database, queue, enqueue, written, untilStopped } = await processLane(t);
  type Own = { results: { session_id: string; note: string } };
  startRunner<Transaction<Own>>(t, {
    store: queue,
    handlers: {
      model_turn:
        async ({ sessionId }) =>
        (transaction) =>
          transaction
            .withSchema(database.schema)
            .insertInto('results')
            .values({ session_id: sessionId, note: 'typed' })
            .execute(),
    },
  });
  await untilStopped(await enqueue('session'));
  t.strictSame(await written(), ['session typed']);
});

t.test('a settlement that throws is rolled back whole, and the attempt is spent', async (t) => {
  const { queue, enqueue, written, write, row } = await processLane(t);
  const id = await enqueue('session');
  startRunner(t, {
    store: queue,
    handlers: {
      model_turn: async (item) => async (transaction) => {
        await write(transaction, item);
        throw new Error('no such column');
      },
    },
    ...NEVER,
  });
  await until('the attempt to be spent', async () => `${(await row(id)).attempt}` === '2');
  t.match(await row(id), { state: 'queued', last_error: 'Error: no such column', stopped_at: null });
  t.strictSame(await written(), []);
});

t.test('a lease that is lost in between: nothing is written, and the settlement not even begun', async (t) => {
  const { database, queue, enqueue, written, write, row } = await processLane(t);
  const id = await enqueue('session');
  const { promise: begun, resolve: begin } = gate();
  const { promise: work, resolve: finish } = gate();
  let settled = 0;
  const { logged } = startRunner(t, {
    store: queue,
    concurrency: 1, // or it takes over itself what has lapsed
    handlers: {
      async model_turn(item) {
        begin();
        await work;
        return async (transaction) => {
          settled++;
          await write(transaction, item);
        };
      },
    },
    ...NEVER,
  });
  await begun;
  await lapse(database, id);
  const other = await queue.claim('model_turn', { ttlSeconds: 60, workerId: 'other' });
  t.match(other, { id, isReclaimed: true });
  finish();
  await until('the log', () => logged.some(({ message }) => /lease was lost/.test(message)));
  t.equal(settled, 0);
  t.strictSame(await written(), []);
  t.match(await row(id), { state: 'active', worker_id: 'other', attempt: 1 });
});

t.test('no throw of a handler stops the runner: each is a failed attempt', async (t) => {
  const { queue, enqueue, row, untilStopped } = await processLane(t);
  const throws: Record<string, () => unknown> = {
    'at once': () => {
      throw new Error('at once');
    },
    later: () => Promise.reject(new TypeError('later')),
    nothing: () => Promise.reject(undefined),
    'a lone surrogate': () => Promise.reject(new Error('\uD800 \0')),
    'no settlement': async () => ({ outcome: 1 }),
  };
  const ids = new Map<string, string>();
  for (const name of Object.keys(throws)) ids.set(name, await enqueue(name));
  const handlers = { model_turn: ({ sessionId }: Claimed) => throws[sessionId]?.() as Promise<void> };
  startRunner(t, { store: queue, handlers, ...NEVER });
  for (const [name, id] of ids) {
    await until(`${name} to fail`, async () => `${(await row(id)).attempt}` === '2');
  }
  const errorOf = async (name: string) => (await row(ids.get(name) ?? '')).last_error;
  t.equal(await errorOf('at once'), 'Error: at once');
  t.equal(await errorOf('later'), 'TypeError: later');
  t.equal(await errorOf('nothing'), 'undefined');
  t.match(await errorOf('no settlement'), /must answer its settlement, a function, or \{ result \}, or nothing/);
  throws.fine = async () => {};
  await untilStopped(await enqueue('fine'));
});

t.test('a failed attempt is taken up again soon after it is due, without a backstop', async (t) => {
  const { database, queue, environmentId, row, untilStopped } = await processLane(t);
  const lateMs: number[] = [];
  const handlers = {
    async model_turn({ attempt, seq }: Claimed) {
      const [due] = await database.rows(sql<{ late: number }>`
        select (extract(epoch from clock_timestamp() - replace(w.last_error, 'Error: ', '')::timestamptz) * 1000)::float8 as late
        from ${database.names.workItems} w where w.seq = ${seq}::bigint and w.last_error is not null`);
      if (due !== undefined) lateMs.push(due.late);
      if (attempt === 1) throw new Error(new Date().toISOString());
    },
  };
  startRunner(t, { store: queue, handlers, ...NEVER });
  const { item } = await queue.enqueue({ environmentId, sessionId: 'session', kind: 'model_turn' });
  await untilStopped(item.id);
  t.match(await row(item.id), { attempt: 2 });
  t.ok((lateMs[0] ?? 0) >= 490 && (lateMs[0] ?? 0) < 2_000, `after ${lateMs} ms: half a second to one, and a little`);
});

t.test('stalled work is left, and told of; another runner takes it over', async (t) => {
  const { database, queue, enqueue, row, written, write, untilStopped } = await processLane(t);
  const id = await enqueue('session');
  const { promise: work, resolve: finish } = gate();
  const { promise: aborted, resolve: abort } = gate<unknown>();
  const { promise: late, resolve: tellLate } = gate<unknown>();
  const told: unknown[] = [];
  const first = startRunner(t, {
    store: queue,
    workerId: 'first',
    stallSeconds: 0.05,
    logger: { info() {}, warn: (...said) => told.push(said), error() {} },
    handlers: {
      // Ignores its signal, and goes on when everything is over.
      async model_turn(item, { signal, tx }) {
        signal.addEventListener('abort', () => abort(signal.reason));
        await work;
        await tx((transaction) => write(transaction, item, 'too late')).catch(tellLate);
        return (transaction) => write(transaction, item, 'too late');
      },
    },
    ...NEVER,
  });
  t.match(await aborted, { name: 'LeaseError', code: 'work_stalled' });
  first.stop();
  await first.ended; // a handler that ignores its signal keeps nobody
  t.match(told, [[{ work: id, kind: 'model_turn', err: { code: 'work_stalled' } }, /given up/]]);
  t.match(await row(id), { state: 'active', worker_id: 'first', attempt: 1 }, 'left as it is, also at the end');
  await lapse(database, id);
  const seen: Claimed[] = [];
  startRunner(t, {
    store: queue,
    workerId: 'second',
    handlers: {
      model_turn: async (item) => {
        seen.push(item);
        return (transaction) => write(transaction, item, 'second');
      },
    },
    sweepIntervalMs: 10,
    backstopMs: 3_600_000,
  });
  await untilStopped(id);
  t.match(seen, [{ id, isReclaimed: true, attempt: 1, lease: { workerId: 'second', handOut: 2 } }]);
  finish();
  t.match(await late, { code: 'work_stalled' });
  t.strictSame(await written(), ['session second']);
});

t.test('work that reports progress is not stalled, and its lease is kept', async (t) => {
  const { queue, enqueue, row, untilStopped } = await processLane(t);
  const id = await enqueue('session');
  const before = gate<string | null | undefined>();
  const { promise: work, resolve: finish } = gate();
  startRunner(t, {
    store: queue,
    stallSeconds: 0.3,
    handlers: {
      async model_turn(_item, { progress, signal }) {
        const timer = setInterval(progress, 20);
        before.resolve((await row(id)).lease_expires_at);
        await work;
        clearInterval(timer);
        t.notOk(signal.aborted);
      },
    },
  });
  const expiresAt = await before.promise;
  await until('two renewals', async () => {
    const now = Date.parse(`${(await row(id)).lease_expires_at}`);
    return now > Date.parse(`${expiresAt}`) + 450;
  });
  finish();
  await untilStopped(id);
});

for (const [verdict, reason] of [
  ['run', 'worker'],
  ['done', 'worker'],
  ['fail', 'failed'],
] as const) {
  t.test(`what was taken over is decided upon: ${verdict}`, async (t) => {
    const { database, queue, enqueue, row, written, write, untilStopped } = await processLane(t);
    const id = await enqueue('session');
    await queue.claim('model_turn', { ttlSeconds: 60, workerId: 'dead' });
    await lapse(database, id);
    const asked: unknown[] = [];
    startRunner(t, {
      store: queue,
      handlers: { model_turn: async (item) => (transaction) => write(transaction, item, 'run again') },
      async onReclaimed(item: Claimed, context: HandlerContext) {
        asked.push({ ...item, aborted: context.signal.aborted });
        return verdict;
      },
      sweepIntervalMs: 10,
    });
    await untilStopped(id, reason);
    t.match(asked, [{ id, isReclaimed: true, aborted: false }]);
    t.strictSame(await written(), verdict === 'run' ? ['session run again'] : []);
    if (verdict === 'fail') t.match((await row(id)).last_error, /its claimant died/);
    const fresh = await enqueue('another');
    await untilStopped(fresh);
    t.equal(asked.length, 1, 'a first claim is not asked about');
  });
}

t.test('who decides may fail, or answer nonsense: the work is not run for that', async (t) => {
  const { database, queue, enqueue, row } = await processLane(t);
  const answers: [session: string, answer: () => never][] = [
    [
      'throws',
      () => {
        throw new Error('cannot tell');
      },
    ],
    ['nonsense', () => undefined as never],
  ];
  for (const [session, answer] of answers) {
    const id = await enqueue(session);
    await queue.claim('model_turn', { ttlSeconds: 60, workerId: 'dead' });
    await lapse(database, id);
    const runner = startRunner(t, {
      store: queue,
      handlers: { model_turn: async () => void t.fail('run') },
      onReclaimed: answer,
      ...NEVER,
    });
    await until('it to fail', async () => `${(await row(id)).attempt}` === '2');
    t.match((await row(id)).last_error, session === 'throws' ? /cannot tell/ : /onReclaimed must answer one of/);
    runner.stop();
    await runner.ended;
  }
});

t.test('what a dead claimant left is still that after somebody gave it back', async (t) => {
  const { database, queue, enqueue } = await processLane(t);
  const id = await enqueue('session');
  const by = { ttlSeconds: 60 };
  await queue.claim('model_turn', by);
  await lapse(database, id);
  const second = await queue.claim('model_turn', by);
  t.equal(second?.isReclaimed, true);
  if (second === null) return;
  await queue.requeue(second.lease);
  t.match(await queue.claim('model_turn', by), { id, isReclaimed: true }, 'nobody has decided upon it yet');
});

t.test('a request to cancel reaches the work, and its item ends as cancelled, whatever it answers', async (t) => {
  const { queue, enqueue, environmentId, written, write, untilStopped } = await processLane(t);
  for (const answer of ['settles', 'throws'] as const) {
    const id = await enqueue(answer);
    const { promise: begun, resolve: begin } = gate();
    const runner = startRunner(t, {
      store: queue,
      ...EAGER,
      handlers: {
        async model_turn(item, { signal, progress }) {
          begin();
          await gettingOn(progress, () => new Promise((resolve) => signal.addEventListener('abort', resolve)));
          t.match(signal.reason, { code: 'cancelled' });
          if (answer === 'throws') signal.throwIfAborted();
          return (transaction) => write(transaction, item);
        },
      },
    });
    await begun;
    t.match(await queue.requestCancel({ environmentId, id }), { accepted: true });
    await untilStopped(id, 'cancelled');
    runner.stop();
    await runner.ended;
  }
  t.strictSame(await written(), []);
});
