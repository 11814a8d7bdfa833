import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { setTimeout as delay } from 'node:timers/promises';
import { sql } from 'kysely';
import t from 'tap';
import { type ClientOptions, ControlError, createControlClient } from '../src/index.ts';
import { auditOf, rowCounts } from './support/changes.ts';
import { OPERATOR_KEY, testServer, until } from './support/harness.ts';
import { hold } from './support/interleave.ts';
import { listenOnLoopback } from './support/loopback.ts';

type Sent = { readonly url: string; readonly method: string; readonly headers: Headers };

/** A way to the server that notes what is sent, waits for nothing, and may lose or replace answers. */
function recording(baseUrl: string, fate: (n: number, send: () => Promise<Response>) => Promise<Response>) {
  const sent: Sent[] = [];
  const slept: number[] = [];
  const options: ClientOptions = {
    baseUrl,
    apiKey: OPERATOR_KEY,
    async fetch(url, init = {}) {
      sent.push({ url: String(url), method: init.method ?? 'GET', headers: new Headers(init.headers) });
      return fate(sent.length, () => fetch(url, init));
    },
    sleep: async (ms) => void slept.push(ms),
  };
  return { sent, slept, client: createControlClient(options), options };
}

const keysOf = (sent: readonly Sent[]) => sent.map(({ headers }) => headers.get('idempotency-key'));

const lost = () => Promise.reject(new TypeError('fetch failed'));
const answered = (status: number, headers: Record<string, string> = {}, details?: object) => {
  const error = { type: 'some_error', message: 'said', ...(details === undefined ? {} : { details }) };
  const body = { type: 'error', error, request_id: 'req_x' };
  return new Response(JSON.stringify(body), { status, headers: { 'request-id': 'req_x', ...headers } });
};
const body = { data: { type: 'session', id: 'session' } } as const;

/** Nobody listens there: every answer is made up. */
const NOWHERE = 'http://127.0.0.1:9';

t.test('each method reaches its route', async (t) => {
  const { url, environment } = await testServer(t);
  const { client, sent } = recording(`${url}/`, (_, send) => send());
  const key = await client.issueEnvironmentKey(environment.id, { name: 'workers' });
  t.match(key, { name: 'workers', key: /^lhe_/ });
  const item = await client.enqueueWork(environment.id, { ...body, metadata: { a: 'b' } });
  t.match(item, { type: 'work', state: 'queued', metadata: { a: 'b' } });
  const page = await client.listAudit({ environment_id: environment.id, limit: 1 });
  t.match(page, { data: [{ action: 'enqueueWork', target: item.id }], next_page: /./ });
  const [first, second, third] = keysOf(sent);
  t.match(first, /^[\w-]{36}$/);
  t.not(second, first, 'each call has a key of its own');
  t.equal(third, null, 'a reading has none');
});

t.test('an answer that is lost after the server acted is asked for again under the same key: one item', async (t) => {
  const server = await testServer(t);
  const { client, sent, slept } = recording(server.url, async (n, send) => {
    const response = await send();
    await response.clone().text();
    return n <= 2 ? lost() : response;
  });
  const item = await client.enqueueWork(server.environment.id, body);
  t.equal(sent.length, 3);
  t.equal(new Set(keysOf(sent)).size, 1, 'the same key on each try');
  t.equal(slept.length, 2);
  t.match(await rowCounts(server.database), { workItems: 1, auditLog: 1, idempotencyKeys: 1 });
  t.match(await auditOf(server), [{ target: item.id, status: 201 }]);
});

t.test('the caller may bring a key of its own; the same in a later process is the same call', async (t) => {
  const { url, environment } = await testServer(t);
  const ask = () => recording(url, (_, send) => send());
  const [one, other] = [ask(), ask()];
  const first = await one.client.enqueueWork(environment.id, body, { idempotencyKey: 'mine' });
  const second = await other.client.enqueueWork(environment.id, body, { idempotencyKey: 'mine' });
  t.strictSame(second, first);
  t.same(keysOf([...one.sent, ...other.sent]), ['mine', 'mine']);
});

t.test('while the first try still runs, its repeat comes back after the time it is told', async (t) => {
  const server = await testServer(t);
  const { environment, database } = server;
  const held = await hold(t, database, ({ rows, names }) =>
    rows(sql`select from ${names.environments} where id = ${environment.id} for update`),
  );
  let statuses: number[] = [];
  let first: Promise<unknown> | undefined;
  const { client, slept } = recording(server.url, async (n, send) => {
    if (n === 1) {
      first = send();
      await held.untilBlocked();
      return lost();
    }
    if (n === 3) {
      await held.rollback();
      await first; // the waiting is only written down: on a busy machine it would run yet
    }
    const response = await send();
    statuses = [...statuses, response.status];
    return response;
  });
  const item = await client.enqueueWork(environment.id, body);
  t.equal(statuses[0], 409);
  t.ok((slept[1] ?? 0) >= 1_000, 'retry-after');
  t.match(await auditOf(server), [{ target: item.id }], 'once');
});

t.test('429, 503 and a change in progress are tried again after retry-after, nothing else is', async (t) => {
  const inProgress = { error_code: 'idempotency_in_progress' };
  const again = [
    answered(429, { 'retry-after': '7' }),
    answered(503, { 'retry-after': '7' }),
    answered(409, { 'retry-after': '7' }, inProgress),
  ];
  for (const answer of again) {
    const { client, sent, slept } = recording(NOWHERE, async (n) => (n === 1 ? answer : Response.json({ data: [] })));
    await client.listAudit();
    t.equal(sent.length, 2, `${answer.status}`);
    t.same(slept, [7_000], `${answer.status}`);
  }
  for (const status of [400, 401, 403, 404, 409, 412, 413, 500]) {
    const { client, sent } = recording(NOWHERE, async () => answered(status, {}, { error_code: 'a_code' }));
    const error = await client.enqueueWork('env_x', body).catch((error: unknown) => error);
    t.ok(error instanceof ControlError, `${status}`);
    t.match(error, {
      status,
      type: 'some_error',
      message: 'said',
      details: { error_code: 'a_code' },
      requestId: 'req_x',
    });
    t.equal(sent.length, 1, `${status}`);
  }
});

t.test('it gives up after as many retries as it may, with what was said last', async (t) => {
  for (const retriesMax of [0, 3]) {
    const { options, sent, slept } = recording(NOWHERE, lost);
    const client = createControlClient({ ...options, retriesMax });
    await t.rejects(client.listAudit(), { name: 'ControlError', status: undefined, type: 'connection_error' });
    t.equal(sent.length, retriesMax + 1);
    for (const [n, ms] of slept.entries()) {
      const most = 200 * 2 ** n;
      t.ok(ms >= most / 2 && ms <= most, `doubling, with jitter: ${ms}`);
    }
  }
  const { client, sent } = recording(NOWHERE, async () => answered(503));
  await t.rejects(client.listAudit(), { name: 'ControlError', status: 503 });
  t.equal(sent.length, 5, 'four, unless told otherwise');
});

t.test('an answer that is not the server’s is an error that shows it', async (t) => {
  const { client } = recording(NOWHERE, async () => new Response('<html>bad gateway</html>', { status: 502 }));
  await t.rejects(client.listAudit(), {
    name: 'ControlError',
    status: 502,
    type: 'unknown_error',
    message: /bad gateway/,
  });
});

t.test('an answer that does not come in time counts as lost', async (t) => {
  const port = await listenOnLoopback(t, createServer()); // it never answers
  let tries = 0;
  const { options } = recording(`http://127.0.0.1:${port}`, async (n, send) => {
    tries = n;
    return n === 1 ? send() : Response.json({ data: [], next_page: null });
  });
  await createControlClient({ ...options, answerMsMax: 20 }).listAudit();
  t.equal(tries, 2);
});

t.test('the signal ends a call, and a wait between tries, with its reason', async (t) => {
  const reason = new Error('no longer wanted');
  const port = await listenOnLoopback(t, createServer());
  const { client: hanging, sent } = recording(`http://127.0.0.1:${port}`, (_, send) => send());
  const ended = new AbortController();
  const call = hanging.listAudit({}, { signal: ended.signal });
  await until('it was sent', () => sent.length === 1);
  ended.abort(reason);
  await t.rejects(call, reason);
  t.equal(sent.length, 1, 'and is not tried again');

  const { sleep: _, ...options } = recording(NOWHERE, async () => answered(503, { 'retry-after': '60' })).options;
  const waiting = new AbortController();
  const client = createControlClient(options);
  const slow = client.listAudit({}, { signal: waiting.signal });
  await delay(0);
  waiting.abort(reason);
  await t.rejects(slow, reason);
});

t.test('what stands in a path stays one part of it', async (t) => {
  const { client, sent } = recording(NOWHERE, async () => Response.json({}));
  await client.enqueueWork('../v1/x?y#z', body);
  t.equal(new URL(sent[0]?.url ?? '').pathname, '/control/v1/environments/..%2Fv1%2Fx%3Fy%23z/work');
});

t.test('every route of ours has a method of its name', async (t) => {
  const { paths } = JSON.parse(readFileSync(new URL('../openapi/work-api.json', import.meta.url), 'utf8'));
  const ours = Object.entries<Record<string, { operationId: string }>>(paths).flatMap(([path, operations]) =>
    path.startsWith('/control/') ? Object.values(operations).map(({ operationId }) => operationId) : [],
  );
  const client = createControlClient({ baseUrl: 'http://127.0.0.1:1', apiKey: 'unused' });
  t.same(Object.keys(client).sort(), ours.sort());
});
