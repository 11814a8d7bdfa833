import { sql } from 'kysely';
import t, { type Test } from 'tap';
import {
  createWireRunner,
  type HandlerContext,
  issueKey,
  type Logger,
  revokeKey,
  type WireRunnerOptions,
} from '../../src/index.ts';
import { OPERATOR_KEY, type Server, testServer, until } from '../support/harness.ts';

/** Nothing is found by the clock: what is taken was told of. */
const NEVER_MS = 3_600_000;
const SILENT: Logger = { info() {}, warn() {}, error() {} };

/** Renews each second for the stall's sake, and trusts each lease for a minute, however busy the machine is. */
const EAGER = { stallSeconds: 1 };
/** The work gets on until it is asked to end. */
const untilAborted = ({ signal, progress }: HandlerContext) =>
  until('it is asked to end', () => {
    progress();
    return signal.aborted;
  });

/** What is reserved stays so, however busy the machine is. */
const newServer = (t: Test) =>
  testServer(t, { engine: 'postgres', background: true, settings: { reclaimOlderThanMs: 600_000 } });

function start(t: Test, { url, environmentKey: key }: Server, options: Partial<WireRunnerOptions>) {
  const stopping = new AbortController();
  const given = { handlers: { tool_exec: async () => {} }, backstopMs: NEVER_MS, logger: SILENT };
  const ended = createWireRunner({ ...given, url, key, ...options }).run(stopping.signal);
  ended.catch(() => {});
  t.teardown(async () => {
    stopping.abort();
    await ended.catch(() => {});
  });
  return { ended, stop: () => stopping.abort() };
}

async function rowOf({ database }: Server, sessionId: string) {
  const [row] = await database.rows(sql<Record<string, unknown>>`
    select w.id, w.state, w.outcome, w.attempt, w.hand_out_count, w.last_error, w.worker_id
    from ${database.names.workItems} w where w.session_id = ${sessionId}`);
  return row ?? {};
}

const isOver = async (server: Server, sessionId: string) => (await rowOf(server, sessionId)).state === 'stopped';

/** Loses the answers that `isLost` names, once the server has given them. */
const losing = (isLost: (call: string) => boolean) => {
  const lost: string[] = [];
  const asked: typeof fetch = async (input, init) => {
    const response = await fetch(input, init);
    const call = `${init?.method} ${new URL(`${input}`).pathname.replace(/work_\w[\w-]*/, 'id')}`;
    if (!isLost(call)) return response;
    lost.push(call);
    await response.body?.cancel();
    throw new TypeError('the answer is lost');
  };
  return { fetch: asked, lost };
};

t.test('what is enqueued is taken when it is told of, not by the clock', async (t) => {
  const server = await newServer(t);
  const seen: unknown[] = [];
  start(t, server, { handlers: { tool_exec: async ({ input }) => void seen.push(input) }, workerId: 'kit' });
  await until('it polls', async () => (await server.queue.stats(server.environment.id)).workersPolling === 1);
  for (const n of [1, 2, 3]) {
    await server.queue.enqueue({ environmentId: server.environment.id, sessionId: `${n}`, input: { n } });
    await until(`${n} is done`, () => isOver(server, `${n}`));
  }
  t.same(seen, [{ n: 1 }, { n: 2 }, { n: 3 }]);
  t.match(await rowOf(server, '1'), { outcome: 'succeeded', worker_id: 'kit', attempt: 1 });
});

t.test('without the event stream work is found by the clock', async (t) => {
  const server = await newServer(t);
  const warnings: string[] = [];
  const without: typeof fetch = async (input, init) =>
    `${input}`.endsWith('/events') ? new Response('{"type":"error"}', { status: 404 }) : fetch(input, init);
  start(t, server, {
    fetch: without,
    backstopMs: 20,
    logger: { ...SILENT, warn: (_, message) => warnings.push(message) },
  });
  await server.enqueue('session');
  await until('it is done', () => isOver(server, 'session'));
  t.match(warnings, [/by the clock alone/]);
});

/** Runs until it is told. */
const endless = (begun: string[]) => ({
  async tool_exec({ id }: { readonly id: string }, { signal }: { readonly signal: AbortSignal }) {
    begun.push(id);
    await new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)));
  },
});

async function handOutsOf(server: Server, sessionId: string) {
  const { id } = await rowOf(server, sessionId);
  const path = `/control/v1/environments/${server.environment.id}/work/${id}/history`;
  return (await server.call('GET', path, { as: OPERATOR_KEY })).json.hand_outs;
}

t.test('a shutdown gives back what runs: nothing is counted against it, the next worker has it at once', async (t) => {
  const server = await newServer(t);
  const begun: string[] = [];
  const first = start(t, server, {
    ...{ workerId: 'first', graceSeconds: 0, concurrency: 1 },
    handlers: endless(begun),
  });
  const id = await server.enqueue('session');
  await until('it runs', () => begun.length === 1);
  t.same(begun, [id]);
  first.stop();
  await first.ended;
  const given = await rowOf(server, 'session');
  t.match(given, { state: 'queued', attempt: 1 });
  t.not(given.id, id, 'under another id');
  start(t, server, { workerId: 'second' });
  await until('it is done', () => isOver(server, 'session'));
  t.match(await rowOf(server, 'session'), { outcome: 'succeeded', attempt: 1, worker_id: 'second' });
  t.match(await handOutsOf(server, 'session'), [{ worker_id: 'first', outcome: 'released' }, { worker_id: 'second' }]);
});

t.test('a shutdown gives back what a poll brings that was under way, too', async (t) => {
  const server = await newServer(t);
  const begun: string[] = [];
  const released = Promise.withResolvers<void>();
  const asked: string[] = [];
  const first = start(t, server, {
    ...{ workerId: 'first', graceSeconds: 0, concurrency: 2 },
    handlers: endless(begun),
    async fetch(input, init) {
      const call = new URL(`${input}`).pathname.split('/').at(-1) ?? '';
      asked.push(call);
      if (call === 'poll' && asked.includes('heartbeat')) await released.promise;
      const response = await fetch(input, init);
      if (call === 'release') released.resolve();
      return response;
    },
  });
  await server.enqueue('session');
  await until(
    'it runs, and the next poll is under way',
    () => begun.length === 1 && asked.lastIndexOf('poll') > asked.indexOf('heartbeat'),
  );
  first.stop();
  await first.ended;
  t.match(await rowOf(server, 'session'), { state: 'queued', attempt: 1, last_error: null });
  t.equal(begun.length, 1, 'it was not begun again');
  const twice = { worker_id: 'first', outcome: 'released' };
  t.match(await handOutsOf(server, 'session'), [twice, twice]);
});

t.test('answers that are lost cost nothing: the first heartbeat, a later one, the outcome', async (t) => {
  const server = await newServer(t);
  let beats = 0;
  let outcomes = 0;
  const { fetch, lost } = losing((call) => {
    if (call.endsWith('/heartbeat')) return ++beats === 1 || beats === 3;
    return call.startsWith('PATCH') && ++outcomes === 1;
  });
  let runs = 0;
  start(t, server, {
    ...{ ...EAGER, fetch },
    handlers: {
      async tool_exec(_, { progress }) {
        runs++;
        await until('it was renewed after a loss', () => {
          progress();
          return beats >= 4;
        });
        return { result: runs };
      },
    },
  });
  await server.enqueue('session');
  await until('it is done', () => isOver(server, 'session'));
  await until('it was said again', () => outcomes === 2);
  t.same(
    lost.map((call) => call.split(' ')[0]),
    ['POST', 'POST', 'PATCH'],
  );
  t.match(await rowOf(server, 'session'), { outcome: 'succeeded', attempt: 1, hand_out_count: 1 });
  t.equal(runs, 1);
});

t.test(
  "what a front answers in the server's stead is no refusal: asked again, nothing is lost, done once",
  async (t) => {
    const server = await newServer(t);
    const fronted = new Set<string>();
    let runs = 0;
    start(t, server, {
      ...{ backstopMs: 50, workerId: 'fronted' },
      async fetch(input, init) {
        const what = /caller|poll|ack|heartbeat|input|work_[^/]+$/.exec(new URL(`${input}`).pathname)?.[0] ?? '';
        const call = what.startsWith('work_') ? 'outcome' : what;
        if (call === '' || call === 'ack' || fronted.has(call)) return fetch(input, init);
        fronted.add(call);
        return new Response('404 page not found', { status: 404 });
      },
      handlers: { tool_exec: async () => ({ result: ++runs }) },
    });
    await server.enqueue('session');
    await until('it is done', () => isOver(server, 'session'));
    t.same([...fronted].sort(), ['caller', 'heartbeat', 'input', 'outcome', 'poll']);
    t.match(await rowOf(server, 'session'), { outcome: 'succeeded', attempt: 1 });
    t.equal(runs, 1);
  },
);

t.test('a server that does not tell what a worker needs, or how it likes its secret, costs no item', async (t) => {
  const server = await newServer(t);
  let old = 0;
  const runs: unknown[] = [];
  start(t, server, {
    backstopMs: 50,
    async fetch(input, init) {
      const response = await fetch(input, init);
      const { pathname } = new URL(`${input}`);
      if (pathname.endsWith('/input') && ++old === 1) return Response.json({ input: null }); // of the version before
      if (!pathname.endsWith('/poll')) return response;
      const work = (await response.json()) as { secret: string } | null;
      if (work === null) return Response.json(null);
      const secret = JSON.parse(Buffer.from(work.secret, 'base64url').toString());
      const odd = JSON.stringify({ ...secret, api_base_url: 'http://x/~~~>>>???' }); // has - and _ in base64url
      return Response.json({ ...work, secret: Buffer.from(odd).toString('base64url') });
    },
    handlers: { tool_exec: async ({ isReclaimed }) => void runs.push(isReclaimed) },
  });
  await server.enqueue('session');
  await until('the old one was asked', () => old === 1);
  await until('it is done', () => isOver(server, 'session'));
  t.same(runs, [false], 'it was given back: nobody had begun it');
  t.match(await rowOf(server, 'session'), { attempt: 1, hand_out_count: 1 });
});

t.test('an item that is stopped by force is left; its handler is told, and the next one is taken', async (t) => {
  const server = await newServer(t);
  const reasons: unknown[] = [];
  start(t, server, {
    ...EAGER,
    handlers: {
      async tool_exec({ sessionId }, context) {
        if (sessionId === 'next') return;
        await untilAborted(context);
        reasons.push(context.signal.reason);
      },
    },
  });
  const id = await server.enqueue('session');
  await until('it runs', async () => (await rowOf(server, 'session')).state === 'active');
  await server.call('POST', server.work(`/${id}/stop`), { as: OPERATOR_KEY, body: { force: true } });
  await until('its handler is told', () => reasons.length === 1);
  t.match(reasons, [{ code: 'lease_lost' }]);
  await server.enqueue('next');
  await until('the next is done', () => isOver(server, 'next'));
  t.match(await rowOf(server, 'session'), { state: 'stopped', outcome: null });
});

t.test('what there is not over HTTP fails by name, and the work with it', async (t) => {
  const server = await newServer(t);
  start(t, server, {
    handlers: {
      async tool_exec({ sessionId, environmentId }, { tx, enqueue }) {
        if (sessionId === 'tx') await tx(async () => {});
        else if (sessionId === 'enqueue') await enqueue({ environmentId, sessionId: 'another' });
        else return () => {};
      },
    },
  });
  const { environment, queue } = server;
  for (const sessionId of ['tx', 'settlement', 'enqueue'])
    await queue.enqueue({ environmentId: environment.id, sessionId, maxAttempts: 1 });
  for (const sessionId of ['tx', 'settlement', 'enqueue'])
    await until(`${sessionId} has failed`, () => isOver(server, sessionId));
  t.match((await rowOf(server, 'tx')).last_error, /no transactions/);
  t.match((await rowOf(server, 'settlement')).last_error, /no transactions/);
  t.match((await rowOf(server, 'enqueue')).last_error, /may not enqueue/);
});

t.test('a key that is revoked ends it with what the server said', async (t) => {
  const server = await newServer(t);
  const { database, environment } = server;
  const { id, key } = await issueKey(database, { environmentId: environment.id, name: 'short' });
  const { ended } = start(t, server, { key, backstopMs: 20, workerId: 'short' });
  await until('it polls', async () => (await server.queue.stats(environment.id)).workersPolling === 1);
  await revokeKey(database, { environmentId: environment.id, id });
  await t.rejects(ended, { name: 'ControlError', message: /credential/ });
});

t.test('what cannot work is refused before anything is asked, or by its first answer', async (t) => {
  const server = await testServer(t, { engine: 'postgres' });
  const { url, environmentKey: key } = server;
  const tool_exec = async () => {};
  const refused: [Partial<WireRunnerOptions>, RegExp][] = [
    [{ url: '' }, /url/],
    [{ url: 'localhost:8080' }, /url must be an address/],
    [{ key: '' }, /key/],
    [{ handlers: {} }, /handlers/],
    [{ handlers: { model_turn: tool_exec } }, /handlers must have one for tool_exec/],
    [{ concurrency: 0 }, /concurrency/],
    [{ ttlSeconds: 0 }, /ttlSeconds/],
    [{ workerId: '' }, /workerId/],
    [{ workerId: 'é\u{1F511}' }, /workerId must be printable ASCII/],
  ];
  for (const [wrong, message] of refused) {
    const options = { url, key, handlers: { tool_exec }, ...wrong };
    t.throws(() => createWireRunner(options), { code: 'invalid_request', message }, JSON.stringify(wrong));
  }
  await t.rejects(start(t, server, { key: OPERATOR_KEY }).ended, { message: /must be an environment key/ });
  await t.rejects(start(t, server, { key: 'unknown' }).ended, { name: 'ControlError', message: /credential/ });
});
