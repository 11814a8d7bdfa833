import { sql } from 'kysely';
import { pino } from 'pino';
import t, { type Test } from 'tap';
import { issueKey, revokeKey } from '../../src/control/keys.ts';
import { everything } from '../support/changes.ts';
import { ENGINES, OPERATOR_KEY, type ServerOptions, testDatabase, testServer, until } from '../support/harness.ts';
import { holding } from '../support/interleave.ts';
import { eventsPath, openWakes } from '../support/wakes.ts';
import { checkRefusal } from '../support/wire.ts';

const ORIGIN = 'https://app.example';

async function scene(t: Test, options: ServerOptions = {}) {
  const server = await testServer(t, { corsOrigins: [ORIGIN], ...options });
  const { call, environment, url, database } = server;
  const path = eventsPath(environment.id);
  const issue = async (key = server.environmentKey) => {
    const answer = await call('POST', `${path}/tickets`, { as: key });
    t.equal(answer.status, 201);
    return answer.json as { ticket: string; expires_at: string };
  };
  return {
    server,
    path,
    issue,
    attach: (ticket: string, id = environment.id) => openWakes(t, url, id, { as: null }, `?ticket=${ticket}`),
    expire: () =>
      database.rows(sql`update ${database.names.streamTickets} set expires_at = clock_timestamp() - interval '1 ms'`),
  };
}

for (const engine of ENGINES) {
  t.test(`${engine}: a ticket opens streams of its environment for a minute, and is kept as a hash`, async (t) => {
    const { server, issue, attach, expire, path } = await scene(t, { engine });
    const { database, call, environmentKey } = server;
    const before = Date.now();
    const { ticket, expires_at: expiresAt } = await issue();
    t.match(ticket, /^lht_[\w-]{43}$/);
    const lifeMs = Date.parse(expiresAt) - before;
    t.ok(lifeMs > 55_000 && lifeMs < 75_000, `${lifeMs} ms`);
    t.notMatch(await everything(database), ticket.slice(4));
    const streams = [await attach(ticket), await attach(ticket)];
    for (const { status } of streams) t.equal(status, 200, 'as often as it is asked for');

    const elsewhere = await testServer(t, { database });
    // A stream in a refusal's stead would not end.
    const refused = async (what: string, of: string, at = path) =>
      checkRefusal(t, await call('GET', `${at}?${of}`, { as: null, signal: AbortSignal.timeout(5_000) }), 401, what);
    // The key of the other would open every environment.
    for (const other of [ticket, (await issue(OPERATOR_KEY)).ticket]) {
      await refused('another environment', `ticket=${other}`, eventsPath(elsewhere.environment.id));
    }
    await refused('none', 'ticket=');
    await refused('unknown', `ticket=lht_${'x'.repeat(43)}`);
    await refused('twice', `ticket=${ticket}&ticket=${ticket}`);
    await refused('a key in its stead', `ticket=${environmentKey}`);
    checkRefusal(t, await call('GET', server.work(`?ticket=${ticket}`), { as: null }), 401, 'another route');
    checkRefusal(t, await call('GET', server.work(), { as: ticket }), 401, 'as a key');
    checkRefusal(t, await call('POST', `${path}/tickets?ticket=${ticket}`, { as: null }), 401, 'for another one');
    await expire();
    await refused('expired', `ticket=${ticket}`);
    for (const { state } of streams) t.equal(state(), 'open', 'what it opened goes on');
  });
}

t.test('streams by a ticket go on when that is over, and end when the key that it was issued with does', async (t) => {
  const { server, issue, attach, expire } = await scene(t, { streaming: { tickMs: 5 } });
  const { database, environment } = server;
  const keyOf = (environmentId: string | null) => issueKey(database, { environmentId, name: 'page' });
  for (const key of [await keyOf(environment.id), await keyOf(null)]) {
    const stream = await attach((await issue(key.key)).ticket);
    const unused = await issue(key.key);
    await expire();
    const comments = stream.frames.length;
    await until('comments', () => stream.frames.length > comments + 3);
    await revokeKey(database, { environmentId: key.environmentId, id: key.id });
    await until('its end', () => stream.state() !== 'open');
    t.equal(stream.state(), 'ended');
    await database.rows(sql`update ${database.names.streamTickets} set expires_at = now() + interval '1 minute'`);
    t.equal((await attach(unused.ticket)).status, 401, 'nor does it open another');
  }
});

t.test('the least age of the key that it was issued with holds', async (t) => {
  const { server, issue, attach } = await scene(t);
  const { database, environment, queue } = server;
  const aged = await issueKey(database, { environmentId: environment.id, name: 'aged', minQueuedAgeMs: 400 });
  const stream = await attach((await issue(aged.key)).ticket);
  const eager = await attach((await issue()).ticket);
  const began = performance.now();
  await queue.enqueue({ environmentId: environment.id, sessionId: 'session' });
  await until('the eager one', () => eager.told().length > 0);
  await until('the other', () => stream.told().length > 0);
  t.ok(performance.now() - began >= 395);
});

t.test('API keys and the environment’s own keys issue tickets, sessions tokens and others do not', async (t) => {
  const { server, issue, attach, path } = await scene(t);
  const { database, call } = server;
  const readOnly = await issueKey(database, { environmentId: null, name: 'dashboard', role: 'read_only' });
  for (const key of [OPERATOR_KEY, readOnly.key, server.environmentKey]) {
    t.equal((await attach((await issue(key)).ticket)).status, 200);
  }
  const { sessionsToken } = await holding(server, 'held', 'reserved');
  const elsewhere = await testServer(t, { database });
  for (const [as, status] of [
    [null, 401],
    [elsewhere.environmentKey, 401],
    [sessionsToken, 403],
  ] as const) {
    checkRefusal(t, await call('POST', `${path}/tickets`, { as }), status, `${as}`);
  }
  checkRefusal(t, await call('POST', `${eventsPath('env_x')}/tickets`, { as: OPERATOR_KEY }), 404, 'no environment');
});

t.test('a ticket of an operator’s key of the process opens nothing where that key is another', async (t) => {
  const { server, issue } = await scene(t);
  const { ticket } = await issue(OPERATOR_KEY);
  await server.database.rows(sql`update ${server.database.names.streamTickets} set key_hash = 'of another process'`);
  t.equal((await openWakes(t, server.url, server.environment.id, { as: null }, `?ticket=${ticket}`)).status, 401);
});

t.test('no ticket is logged, nor shown in a refusal', async (t) => {
  const lines: string[] = [];
  const logger = pino({ level: 'trace' }, { write: (line) => void lines.push(line) });
  const { server, issue, attach, path } = await scene(t, { logger });
  const { ticket } = await issue();
  const stream = await attach(ticket);
  stream.leave();
  const wrong = [eventsPath('env_x'), server.work('/poll'), '/no/route', path.toUpperCase()];
  for (const at of wrong) {
    const answer = await server.call('GET', `${at}?ticket=${ticket}`, { as: null });
    t.notMatch(answer.text + JSON.stringify([...answer.headers]), ticket.slice(4));
  }
  await server.database.close();
  await server.call('GET', `${path}?ticket=${ticket}`, { as: null });
  t.match(lines.join(''), 'tickets', 'the log did see the calls');
  t.notMatch(lines.join(''), ticket.slice(4));
});

t.test('a page of an allowed origin may read the stream and its refusals, with a preflight for headers', async (t) => {
  const { server, issue, path } = await scene(t);
  const { ticket } = await issue();
  const url = `${server.url}${path}`;
  const stopped = new AbortController();
  const get = (at: string, headers: Record<string, string>) => fetch(at, { headers, signal: stopped.signal });
  const plain = await get(`${url}?ticket=${ticket}`, { origin: ORIGIN });
  const allowed = (answer: { headers: Headers }) => answer.headers.get('access-control-allow-origin');
  t.strictSame([plain.status, allowed(plain), plain.headers.get('vary')], [200, ORIGIN, 'origin']);
  const first = await plain.body?.getReader().read();
  t.match(new TextDecoder().decode(first?.value), /^event: work_available\n/);
  const refused = await get(`${url}?ticket=x`, { origin: ORIGIN });
  t.strictSame([refused.status, allowed(refused)], [401, ORIGIN]);

  const preflight = (headers: Record<string, string>, at = path) =>
    server.call('OPTIONS', at, { as: null, headers: { 'access-control-request-method': 'GET', ...headers } });
  const asked = await preflight({ origin: ORIGIN, 'access-control-request-headers': 'authorization' });
  t.strictSame([asked.status, asked.text, allowed(asked)], [204, '', ORIGIN]);
  t.equal(asked.headers.get('access-control-allow-methods'), 'GET');
  t.match(asked.headers.get('access-control-allow-headers'), /authorization/);

  for (const origin of ['https://evil.example', 'https://app.example:8443', 'null', `${ORIGIN}.evil.example`]) {
    const other = await get(`${url}?ticket=${ticket}`, { origin });
    t.strictSame([other.status, allowed(other), other.headers.get('vary')], [200, null, 'origin'], origin);
    t.equal(allowed(await preflight({ origin })), null, origin);
  }
  const issued = await server.call('POST', `${path}/tickets`, { headers: { origin: ORIGIN } });
  t.strictSame([issued.status, allowed(issued)], [201, null], 'of this route alone');
  t.equal(allowed(await server.call('GET', server.work(), { headers: { origin: ORIGIN } })), null);
  checkRefusal(t, await preflight({ origin: ORIGIN }, server.work()), 404, 'no preflight elsewhere');
  stopped.abort();
});

t.test('without a list of origins nothing is allowed, and there is no preflight', async (t) => {
  const { server, issue, path } = await scene(t, { corsOrigins: [], database: await testDatabase(t) });
  const headers = { origin: ORIGIN };
  const stopped = new AbortController();
  const url = `${server.url}${path}?ticket=${(await issue()).ticket}`;
  const answer = await fetch(url, { headers, signal: stopped.signal });
  t.strictSame([answer.status, answer.headers.get('access-control-allow-origin')], [200, null]);
  stopped.abort();
  checkRefusal(t, await server.call('OPTIONS', path, { as: null, headers }), 404, 'OPTIONS');
});
