import { setImmediate as nextTurn } from 'node:timers/promises';
import t, { type Test } from 'tap';
import { issueKey } from '../../src/control/keys.ts';
import { DatabaseUnavailable } from '../../src/db/failures.ts';
import { openStream } from '../support/event-stream.ts';
import { watch } from '../support/gates.ts';
import { OPERATOR_KEY, type Server, type ServerOptions, testDatabase, testServer, until } from '../support/harness.ts';
import { checkRefusal } from '../support/wire.ts';

const as = OPERATOR_KEY;

async function scene(t: Test, options: ServerOptions = {}) {
  const server = await testServer(t, options);
  const create = async ({ call, environment }: Server = server): Promise<string> =>
    (await call('POST', '/v1/sessions', { as, body: { environment_id: environment.id } })).json.id;
  const append = (id: string, text: string, place = server) =>
    place.call('POST', `/v1/sessions/${id}/events`, {
      as,
      body: { events: [{ type: 'user.message', content: [{ type: 'text', text }] }] },
    });
  return { server, id: await create(), create, append, open: server.app.openStreams };
}

t.test('the answer begins at once where there are no events, and each frame says its type', async (t) => {
  const { server, id, append } = await scene(t);
  const stream = await openStream(t, server.url, id);
  t.equal(stream.status, 200);
  t.match(stream.headers, {
    'content-type': 'text/event-stream; charset=utf-8',
    'cache-control': 'no-store',
    'request-id': /^req_/,
    connection: 'close',
  });
  t.strictSame(stream.events(), []);
  const texts = ['plain', 'two\nlines\r\n\r\nand a \u2028', 'event: ping\ndata: {}\n\n', '😀 ü'];
  for (const text of texts) await append(id, text);
  await until('all to come', () => stream.events().length >= 5);
  const seen = stream.events().map(({ type, content }) => content?.[0].text ?? type);
  t.strictSame(seen, [texts[0], 'session.status_running', ...texts.slice(1)]);
  for (const { type, data } of stream.frames) t.equal(type, data.type);
  const listed = (await server.call('GET', `/v1/sessions/${id}/events`, { as })).json.data;
  t.strictSame(stream.events(), listed, 'as they are listed');
});

t.test('pings go on while nothing happens', async (t) => {
  const { server, id } = await scene(t, { streaming: { tickMs: 2 } });
  const stream = await openStream(t, server.url, id);
  await until('pings', () => stream.frames.length >= 5);
  t.strictSame(new Set(stream.frames.map(({ type }) => type)), new Set(['ping']));
});

t.test(
  'each credential that may read a session may stream it, and is told of it before the stream what it may not',
  async (t) => {
    const { server, id, create } = await scene(t);
    const { database, call, work, environment, environmentKey } = server;
    await call('POST', `/v1/sessions/${id}/events`, {
      as,
      body: { events: [{ type: 'agent.tool_use', name: 'bash', input: {} }] },
    });
    const { secret } = (await call('GET', work('/poll'))).json;
    const token: string = JSON.parse(Buffer.from(secret, 'base64url').toString()).sessions_token;
    const { key: readOnly } = await issueKey(database, { environmentId: null, name: 'reader', role: 'read_only' });
    const path = (session: string) => `/v1/sessions/${session}/events/stream`;
    for (const key of [OPERATOR_KEY, environmentKey, token, readOnly]) {
      t.equal((await openStream(t, server.url, id, { as: key })).status, 200);
    }
    const elsewhere = await testServer(t, { database });
    const refusals: [as: string | null, session: string, status: number][] = [
      [null, id, 401],
      ['lhe_unknown', id, 401],
      [elsewhere.environmentKey, id, 401],
      [token, await create(), 403],
      [OPERATOR_KEY, 'sesn_unknown', 404],
      [environmentKey, 'sesn_unknown', 404],
      [OPERATOR_KEY, '%00', 404],
    ];
    for (const [key, session, status] of refusals) {
      checkRefusal(t, await call('GET', path(session), { as: key }), status, `${status} of ${session}`);
    }
    t.equal((await call('HEAD', path(id), { as })).status, 404);
    t.equal(server.app.openStreams(), 4);
    t.ok(environment.id);
  },
);

t.test('the stream of a key that was revoked ends with a ping, those of others go on', async (t) => {
  const { server, id, open } = await scene(t, { streaming: { tickMs: 5 } });
  const { database, environment, url, call } = server;
  const issued = await issueKey(database, { environmentId: environment.id, name: 'leaked' });
  const [revoked, other] = [
    await openStream(t, url, id, { as: issued.key }),
    await openStream(t, url, id, { as: server.environmentKey }),
  ];
  const path = `/control/v1/environments/${environment.id}/keys/${issued.id}`;
  t.equal((await call('DELETE', path, { as })).status, 200);
  await until('its end', () => revoked.state() !== 'open');
  t.equal(revoked.state(), 'ended');
  const pings = other.frames.length;
  await until('another ping', () => other.frames.length > pings + 1);
  t.equal(other.state(), 'open');
  t.equal(open(), 1);
});

t.test('pings of a stream by an environment key do not ask the database whose its session is, each time', async (t) => {
  const { database, begun } = watch(await testDatabase(t), /as "environmentId" from "\w+"\."sessions"/);
  const { server, id } = await scene(t, { database, streaming: { tickMs: 2 } });
  const stream = await openStream(t, server.url, id, { as: server.environmentKey });
  await until('pings', () => stream.frames.length >= 10);
  t.equal(begun(), 1, 'when it attaches');
});

t.test('while the database is gone streams stay, none begins, and what was appended comes after', async (t) => {
  const read = watch(await testDatabase(t), /sized as materialized/);
  const heads = watch(read.database, /"lastEvent"/);
  const { server, id, append } = await scene(t, { database: heads.database, streaming: { tickMs: 20 } });
  const stream = await openStream(t, server.url, id);
  for (const watched of [read, heads]) watched.fail(new DatabaseUnavailable(new Error('gone')));
  t.equal((await append(id, 'unheard')).status, 200);
  checkRefusal(t, await server.call('GET', `/v1/sessions/${id}/events/stream`, { as }), 503, 'attaching');
  const tries = read.begun();
  await until('it is tried again', () => read.begun() > tries + 2);
  t.strictSame([stream.state(), stream.events()], ['open', []]);
  for (const watched of [read, heads]) watched.fail(undefined);
  await until('it to come', () => stream.events().length === 2);
  t.equal(stream.events()[0]?.type, 'user.message');
});

t.test('archiving and deleting a session end its streams on every replica, with a last word', async (t) => {
  const { server, id, create, open } = await scene(t, { background: true });
  const replica = await testServer(t, {
    database: await testDatabase(t, 'postgres', { schema: server.database.schema }),
    background: true,
  });
  await until('both to listen', () => [server, replica].every(({ queue }) => queue.isListening()));
  const other = await create();
  for (const [session, method, path, word] of [
    [id, 'POST', `/v1/sessions/${id}/archive`, 'session.status_terminated'],
    [other, 'DELETE', `/v1/sessions/${other}`, 'session.deleted'],
  ] as const) {
    const streams = [await openStream(t, server.url, session), await openStream(t, replica.url, session)];
    t.equal((await server.call(method, path, { as })).status, 200);
    for (const stream of streams) {
      await until('its end', () => stream.state() !== 'open');
      t.equal(stream.state(), 'ended');
      t.strictSame(
        stream.events().map(({ type }) => type),
        [word],
      );
    }
  }
  const late = await openStream(t, server.url, id);
  await until('its end', () => late.state() !== 'open');
  t.strictSame(
    [late.status, late.state(), late.events().map(({ type }) => type)],
    [200, 'ended', ['session.status_terminated']],
  );
  checkRefusal(t, await server.call('GET', `/v1/sessions/${other}/events/stream`, { as }), 404, 'a deleted one');
  t.equal(open() + replica.app.openStreams(), 0);
});

t.test('streams hold no database connection, and those who leave are forgotten', async (t) => {
  const database = await testDatabase(t, 'postgres', { poolConnectionsMax: 2 });
  const { server, id, append, open } = await scene(t, { database });
  const streams = await Promise.all(Array.from({ length: 20 }, () => openStream(t, server.url, id)));
  t.equal(open(), 20);
  for (let n = 0; n < 5; n++) t.equal((await append(id, `${n}`)).status, 200);
  for (const stream of streams) await until('all to come', () => stream.events().length === 6);
  for (const stream of streams) stream.leave();
  await until('all to be forgotten', () => open() === 0);
  await append(id, 'to nobody');
  const back = await openStream(t, server.url, id);
  await append(id, 'to one');
  await until('it to come', () => back.events().length === 1);
});

t.test('a client that leaves while its stream begins is forgotten, too', async (t) => {
  const { server, id, open } = await scene(t);
  for (let turns = 0; turns < 60; turns++) {
    const leaving = new AbortController();
    const asked = fetch(`${server.url}/v1/sessions/${id}/events/stream`, {
      headers: { 'x-api-key': as },
      signal: leaving.signal,
    }).catch(() => {});
    for (let left = turns; left > 0; left--) await nextTurn();
    leaving.abort();
    await asked;
  }
  await until('all to be forgotten', () => open() === 0);
});
