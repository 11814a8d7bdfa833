import { setImmediate as nextTurn } from 'node:timers/promises';
import t, { type Test } from 'tap';
import { issueKey, revokeKey } from '../../src/control/keys.ts';
import { STATEMENTS, watch } from '../support/gates.ts';
import { OPERATOR_KEY, type ServerOptions, testDatabase, testServer, until } from '../support/harness.ts';
import { holding } from '../support/interleave.ts';
import { eventsPath, openWakes } from '../support/wakes.ts';
import { checkRefusal } from '../support/wire.ts';

const as = OPERATOR_KEY;
const WORK = { type: 'work_available' };

async function scene(t: Test, options: ServerOptions = {}) {
  const server = await testServer(t, options);
  const { call, environment, url } = server;
  const control = `/control/v1/environments/${environment.id}`;
  return {
    server,
    control,
    attach: (key: string | null = as, id = environment.id) => openWakes(t, url, id, { as: key }),
    act: (path: string, body?: unknown) => call('POST', path, { as, ...(body === undefined ? {} : { body }) }),
    open: server.app.openStreams,
  };
}

t.test('the answer begins at once with word that there may be work', async (t) => {
  const { attach } = await scene(t);
  const stream = await attach();
  t.match(stream.headers, {
    'content-type': 'text/event-stream; charset=utf-8',
    'cache-control': 'no-store',
    'request-id': /^req_/,
    connection: 'close',
  });
  t.strictSame(stream.frames, [{ type: 'work_available', data: WORK }]);
});

t.test('work, stops of what is held, pauses and resumes are told to who reads the environment', async (t) => {
  const { server, attach, act, control } = await scene(t);
  const stream = await attach(server.environmentKey);
  const elsewhere = await testServer(t, { database: server.database });
  const neighbour = await openWakes(t, elsewhere.url, elsewhere.environment.id, { as });

  const active = await holding(server, 'active', 'active');
  await until('it was told', () => stream.told().length > 0);
  t.strictSame(stream.told()[0], WORK);
  for (const [what, path, events] of [
    ['a stop', `/v1/environments/${server.environment.id}/work/${active.id}/stop`, [active.id]],
    ['a pause', `${control}/pause`, 'environment_paused'],
    ['a resume', `${control}/resume`, 'environment_resumed'],
  ] as const) {
    stream.forget();
    t.ok((await act(path)).status < 300, what);
    const expected =
      typeof events === 'string' ? { type: events } : { type: 'stop_requested', work_id: String(events[0]) };
    await until(what, () => stream.told().some(({ type }) => type === expected.type));
    t.strictSame(
      stream.told().filter(({ type }) => type !== WORK.type),
      [expected],
    );
    t.equal(stream.told().some(({ type }) => type === WORK.type) && what === 'a pause', false, 'a pause is no work');
  }
  server.queue.hint(server.environment.id, { type: 'lock_released', name: 'build' });
  await until('the lock', () => stream.told().some(({ name }) => name === 'build'));
  t.strictSame(neighbour.told(), []);
});

t.test('a cancel tells of what somebody holds, not of what is only queued', async (t) => {
  const { server, attach, act, control } = await scene(t);
  const held = await holding(server, 'held', 'starting');
  const stream = await attach();
  await server.enqueue('queued');
  for (const id of ['queued', 'held'])
    t.equal((await act(`${control}/work/cancel`, { data: { type: 'session', id } })).status, 200);
  await until('the stop', () => stream.told().some(({ type }) => type === 'stop_requested'));
  t.strictSame(
    stream.told().filter(({ type }) => type === 'stop_requested'),
    [{ type: 'stop_requested', work_id: held.id }],
  );
});

t.test('a stop that a worker asks for, and one that is refused, tell nothing', async (t) => {
  const { server, attach, act, control } = await scene(t);
  const held = await holding(server, 'held', 'active');
  const stream = await attach();
  const stop = `/v1/environments/${server.environment.id}/work/${held.id}/stop`;
  t.equal((await server.call('POST', stop)).status, 204, 'by its worker');
  t.equal((await act(stop)).status, 409, 'once more, by an operator');
  await act(`${control}/pause`);
  await until('what came after', () => stream.told().some(({ type }) => type === 'environment_paused'));
  t.strictSame(stream.told(), [{ type: 'environment_paused' }]);
});

t.test('the library tells of what it is asked to stop for an operator', async (t) => {
  const { server, attach } = await scene(t);
  const { environment, queue } = server;
  const ids = [(await holding(server, 'one', 'active')).id, (await holding(server, 'other', 'active')).id] as const;
  const stream = await attach();
  const ref = (n: 0 | 1) => ({ environmentId: environment.id, id: ids[n], force: false });
  await queue.stop([
    { ...ref(0), reason: 'operator' },
    { ...ref(1), reason: 'worker' },
  ]);
  await until('it was told', () => stream.told().length > 0);
  t.strictSame(stream.told(), [{ type: 'stop_requested', work_id: ids[0] }]);
});

t.test('who may read: API keys, the environment’s own keys and the tokens of its items, and nobody else', async (t) => {
  const { server, attach, open } = await scene(t);
  const { database, call, environment, environmentKey } = server;
  const { sessionsToken } = await holding(server, 'held', 'active');
  const readOnly = await issueKey(database, { environmentId: null, name: 'reader', role: 'read_only' });
  for (const key of [as, environmentKey, sessionsToken, readOnly.key]) t.equal((await attach(key)).status, 200);

  const elsewhere = await testServer(t, { database });
  const other = await holding(elsewhere, 'held', 'active');
  const path = eventsPath(environment.id);
  for (const [what, key, status] of [
    ['none', null, 401],
    ['unknown', 'lhe_unknown', 401],
    ["another environment's key", elsewhere.environmentKey, 401],
    ["the token of another environment's item", other.sessionsToken, 403],
  ] as const) {
    checkRefusal(t, await call('GET', path, { as: key }), status, what);
  }
  for (const id of ['env_unknown', '%00']) checkRefusal(t, await call('GET', eventsPath(id), { as }), 404, id);
  t.equal((await call('HEAD', path, { as })).status, 404);
  t.equal(open(), 4, 'a refusal leaves nothing open');
});

t.test('the stream of a key that was revoked ends, those of others go on', async (t) => {
  const { server, attach, open } = await scene(t, { streaming: { tickMs: 5 } });
  const { database, environment } = server;
  const issued = await issueKey(database, { environmentId: environment.id, name: 'leaked' });
  const [revoked, other] = [await attach(issued.key), await attach(server.environmentKey)];
  await revokeKey(database, { environmentId: environment.id, id: issued.id });
  await until('its end', () => revoked.state() !== 'open');
  t.equal(revoked.state(), 'ended');
  const pings = other.frames.length;
  await until('comments', () => other.frames.length > pings + 1);
  t.strictSame([other.state(), open()], ['open', 1]);
});

t.test('an archived environment is told of; the streams of a deleted one end', async (t) => {
  const { server, attach, open } = await scene(t);
  const { call, environment } = server;
  const stream = await attach();
  t.equal((await call('POST', `/v1/environments/${environment.id}/archive`, { as })).status, 200);
  t.equal((await attach()).status, 200);
  t.equal(stream.state(), 'open');
  t.equal((await call('DELETE', `/v1/environments/${environment.id}`, { as })).status, 200);
  await until('its end', () => stream.state() !== 'open');
  t.equal(stream.state(), 'ended');
  t.equal(open(), 0);
  checkRefusal(t, await call('GET', eventsPath(environment.id), { as }), 404, 'a deleted one');
});

t.test('past the bound it is 503 and comes back later; streams of sessions are counted apart', async (t) => {
  const { server, attach, act } = await scene(t, { streaming: { streamsMax: 2 } });
  const { id } = (await act('/v1/sessions', { environment_id: server.environment.id })).json;
  const session = fetch(`${server.url}/v1/sessions/${id}/events/stream`, { headers: { 'x-api-key': as } });
  const streams = [await attach(), await attach()];
  t.equal((await session).status, 200);
  const refused = await server.call('GET', eventsPath(server.environment.id), { as });
  checkRefusal(t, refused, 503, 'a third');
  streams[0]?.leave();
  await until('it is forgotten', () => server.app.openStreams() === 2);
  t.equal((await attach()).status, 200);
});

t.test('draining ends streams at once, complete, and begins none', async (t) => {
  const { server, attach, open } = await scene(t, { streaming: { tickMs: 3_600_000 } }); // by nothing else
  const streams = await Promise.all(Array.from({ length: 10 }, () => attach()));
  void server.app.drain();
  await until('their end', () => streams.every(({ state }) => state() !== 'open'));
  for (const stream of streams) t.strictSame([stream.state(), stream.rest()], ['ended', '']);
  t.equal(open(), 0);
  checkRefusal(t, await server.call('GET', eventsPath(server.environment.id), { as }), 503, 'one that comes late');
});

t.test('a client that does not read is cut when more than 64 KiB are on their way to it', async (t) => {
  const { server, attach, open } = await scene(t);
  const [slow, reading] = [await attach(), await attach()];
  slow.pause();
  let sent = 0;
  // The system takes megabytes for it first.
  await until('it to be cut', () => {
    for (let n = 0; n < 10 && open() === 2; n++) {
      server.queue.hint(server.environment.id, { type: 'lock_released', name: `${sent++} `.padEnd(4_000, 'x') });
    }
    return open() === 1;
  });
  await until('the other to have all', () => reading.told().length === sent);
  slow.resume();
  await until('its end', () => slow.state() !== 'open');
  t.equal(slow.state(), 'broken');
  t.equal(reading.state(), 'open');
});

t.test('streams hold no database connection, and those who leave are forgotten', async (t) => {
  const database = await testDatabase(t, 'postgres', { poolConnectionsMax: 2 });
  const { server, attach, open } = await scene(t, { database });
  const streams = await Promise.all(Array.from({ length: 20 }, () => attach()));
  t.equal(open(), 20);
  await server.enqueue('session');
  for (const stream of streams) await until('all to come', () => stream.told().length === 1);
  for (const stream of streams) stream.leave();
  await until('all to be forgotten', () => open() === 0);
});

t.test('a client that leaves while its stream begins is forgotten, too', async (t) => {
  const { server, open } = await scene(t);
  for (let turns = 0; turns < 60; turns++) {
    const leaving = new AbortController();
    const asked = fetch(`${server.url}${eventsPath(server.environment.id)}`, {
      headers: { 'x-api-key': as },
      signal: leaving.signal,
    }).catch(() => {});
    for (let left = turns; left > 0; left--) await nextTurn();
    leaving.abort();
    await asked;
  }
  await until('all to be forgotten', () => open() === 0);
});

t.test('comments and wake-ups of an environment key cost no statement', async (t) => {
  const checks = watch(await testDatabase(t), STATEMENTS.changedKeys);
  const { database, begun } = watch(checks.database, /./);
  const { server, attach } = await scene(t, { database, streaming: { tickMs: 2 } });
  const stream = await attach(server.environmentKey);
  const others = () => begun() - checks.begun();
  const [before, checked, since] = [others(), checks.begun(), performance.now()];
  server.queue.hint(server.environment.id, { type: 'environment_paused' });
  await until('comments', () => stream.frames.length >= 10);
  t.ok(others() - before <= 1, `${others() - before}: a notification to other replicas`);
  // And, however many comments, a look at which keys were changed at most every 700 ms.
  const [looks, ms] = [checks.begun() - checked, performance.now() - since];
  t.ok(looks <= 1 + ms / 700, `${looks} looks in ${ms} ms`);
});
