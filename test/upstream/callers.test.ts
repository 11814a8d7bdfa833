import { createHash } from 'node:crypto';
import { sql } from 'kysely';
import t from 'tap';
import { createEnvironment } from '../../src/control/environments.ts';
import { issueKey } from '../../src/control/keys.ts';
import { upstreamServer, vouchedIn } from '../support/application.ts';
import { ENGINES, OPERATOR_KEY, type Server } from '../support/harness.ts';
import { checkRefusal } from '../support/wire.ts';

async function keysOf({ database, environment }: Server) {
  const other = await createEnvironment(database, { name: 'other', type: 'self_hosted' });
  const { key: readOnly, id: readOnlyId } = await issueKey(database, {
    environmentId: null,
    name: 'board',
    role: 'read_only',
  });
  const { key: otherKey } = await issueKey(database, { environmentId: other.id, name: 'others' });
  const { id: keyId } = (
    await database.rows(
      sql<{ id: string }>`select id from ${database.names.credentials} where environment_id = ${environment.id}`,
    )
  )[0] ?? { id: '' };
  return { readOnly, readOnlyId, otherKey, keyId };
}

for (const engine of ENGINES) {
  t.test(`${engine}: who may ask what, and what the application is told of them`, async (t) => {
    const server = await upstreamServer(t, { engine });
    const { environment, environmentKey, application, call, last } = server;
    const { readOnly, readOnlyId, otherKey, keyId } = await keysOf(server);
    const own = await server.handOut('own');
    const foreign = await server.handOut('foreign');

    const environmentId = [environment.id];
    const ofEnvironment = { caller: ['environment'], 'key-id': [keyId], 'environment-id': environmentId };
    const onOwn = { ...ofEnvironment, 'session-id': ['own'], 'work-id': [own.workId] };
    const ofToken = {
      caller: ['session'],
      'environment-id': environmentId,
      'session-id': ['own'],
      'work-id': [own.workId],
    };
    const operator = { caller: ['api'], 'key-id': ['operator'] };
    type Told = Record<string, string[]> | number;
    const paths = [
      '/v1/sessions',
      '/v1/sessions/own',
      '/v1/sessions/own/events/stream?beta=true',
      '/v1/sessions/foreign/events',
      '/v1/sessions/unknown',
      '/v1/skills',
      '/v1/skills/skill_1/versions/1/content',
      '/v1/memory_stores/memstore_1/memories?path=%2Fnotes%2F..%2Fa&view=full',
    ];
    const all = <T>(told: T): T[] => paths.map(() => told);
    const onForeign = { ...onOwn, 'session-id': ['foreign'], 'work-id': [foreign.workId] };
    const rows: [who: string, as: string | null, told: Told[]][] = [
      ['an API key', OPERATOR_KEY, all(operator)],
      ['a read-only API key', readOnly, all({ caller: ['api'], 'key-id': [readOnlyId] })],
      [
        'the environment key',
        environmentKey,
        [403, onOwn, onOwn, onForeign, 401, ofEnvironment, ofEnvironment, ofEnvironment],
      ],
      ['the sessions token', own.token, [403, ofToken, ofToken, 403, 403, ofToken, ofToken, ofToken]],
      ['nobody', null, all(401)],
      ['an unknown key', `${environmentKey}x`, all(401)],
    ];
    for (const [who, as, told] of rows) {
      for (const [at, path] of paths.entries()) {
        const expected = told[at];
        const before = application.arrived.length;
        const answer = await call('GET', path, { as });
        const what = `${who} on ${path}`;
        if (typeof expected === 'number') {
          checkRefusal(t, answer, expected, what);
          t.equal(application.arrived.length, before, `${what} does not reach the application`);
        } else {
          t.match(answer, { status: 200, text: '{}' }, what);
          t.equal(last().url, path, `${what}: the path and the query as they were`);
          t.strictSame(vouchedIn(last()), expected, what);
          t.strictSame(last().headers['request-id'], [answer.headers.get('request-id')], 'under the id of our answer');
        }
      }
    }
    const elsewhere = { as: otherKey };
    checkRefusal(t, await call('GET', '/v1/sessions/own', elsewhere), 401, "another environment's key on a session");
    t.equal((await call('GET', '/v1/skills', elsewhere)).status, 200, 'and on skills it is let in');
    t.not(last().headers['leasehold-environment-id']?.[0], environment.id, 'as its own environment');
  });

  t.test(`${engine}: an environment key is told as the newest item of the session, and of any state`, async (t) => {
    const { enqueue, call, last, work } = await upstreamServer(t, { engine });
    const first = await enqueue('session-1');
    t.equal((await call('POST', work(`/${first}/stop`), { body: { force: true } })).status, 204);
    await call('GET', '/v1/sessions/session-1');
    t.strictSame(last().headers['leasehold-work-id'], [first]);
    const second = await enqueue('session-1');
    await call('GET', '/v1/sessions/session-1');
    t.strictSame(last().headers['leasehold-work-id'], [second]);
  });
}

t.test('what a read-only key may not ask does not reach the application', async (t) => {
  const server = await upstreamServer(t);
  const { readOnly } = await keysOf(server);
  const methods = { GET: 200, HEAD: 200, POST: 403, PUT: 403, PATCH: 403, DELETE: 403, OPTIONS: 403 };
  for (const [method, status] of Object.entries(methods)) {
    t.equal((await server.call(method, '/v1/sessions/one', { as: readOnly })).status, status, method);
  }
  t.strictSame(
    server.application.arrived.map(({ method }) => method),
    ['GET', 'HEAD'],
  );
});

t.test('every usual method is passed on as it is', async (t) => {
  const { call, last } = await upstreamServer(t);
  for (const method of ['GET', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS']) {
    t.equal((await call(method, '/v1/sessions', { as: OPERATOR_KEY })).status, 200, method);
    t.equal(last().method, method);
  }
});

t.test('an id that no header can hold is told percent-encoded, and compared as it is', async (t) => {
  const { handOut, call, last } = await upstreamServer(t);
  const id = 'Sitzung: 1 "ä" 🙂';
  const { token } = await handOut(id);
  t.equal((await call('GET', `/v1/sessions/${encodeURIComponent(id)}`, { as: token })).status, 200);
  t.strictSame(last().headers['leasehold-session-id'], ['Sitzung:%201%20"%C3%A4"%20%F0%9F%99%82']);
});

t.test('credentials stay here, and what a caller says of itself is not passed on', async (t) => {
  const { environmentKey, handOut, call, last } = await upstreamServer(t);
  const { token, workId } = await handOut('own');
  const spoofed = {
    'x-api-key': environmentKey,
    'Leasehold-Caller': 'api',
    'LEASEHOLD-KEY-ID': 'operator',
    leasehold_session_id: 'other',
    'leasehold.work.id': 'work_other',
    'Leasehold-Anything': 'else',
    x_api_key: environmentKey,
    'request-id': 'req_mine',
    'proxy-authorization': 'Basic x',
    te: 'trailers',
  };
  const kept = {
    accept: 'text/event-stream',
    'anthropic-beta': 'managed-agents',
    traceparent: '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01',
    'x-stainless-retry-count': '1',
  };
  const answer = await call('GET', '/v1/sessions/own', { as: token, headers: { ...spoofed, ...kept } });
  t.equal(answer.status, 200);
  const { headers } = last();
  t.match(headers, Object.fromEntries(Object.entries(kept).map(([name, value]) => [name, [value]])));
  const allowed = ['leasehold-caller', 'leasehold-environment-id', 'leasehold-session-id', 'leasehold-work-id'];
  t.strictSame(
    Object.keys(headers)
      .filter((name) => /leasehold/.test(name))
      .sort(),
    allowed,
  );
  t.strictSame(headers['leasehold-caller'], ['session']);
  t.strictSame(headers['leasehold-work-id'], [workId]);
  for (const name of ['authorization', 'x-api-key', 'x_api_key', 'proxy-authorization', 'te'])
    t.notOk(name in headers, name);
  t.strictSame(headers['request-id'], [answer.headers.get('request-id')]);
  for (const secret of [token, environmentKey]) {
    t.notOk(JSON.stringify(last()).includes(secret), 'no credential in any field');
    t.notOk(JSON.stringify(headers).includes(createHash('sha256').update(secret).digest('hex')), 'nor its hash');
  }
});
