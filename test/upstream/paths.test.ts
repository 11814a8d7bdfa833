import t from 'tap';
import { upstreamServer } from '../support/application.ts';
import { OPERATOR_KEY, testServer } from '../support/harness.ts';
import { checkRefusal, exchange, head } from '../support/wire.ts';

/** Read one way they are the session's own, read another way they are not, or nobody's. */
const TRICKS = [
  '/v1/sessions/own/../other',
  '/v1/sessions/own/%2e%2e/other',
  '/v1/sessions/own/.%2E/other',
  '/v1/sessions/own/..%2fother',
  '/v1/sessions/own/..%5cother',
  '/v1/sessions/own/..\\other',
  '/v1/sessions/own\\..\\other',
  '/v1/sessions/own/..;/other',
  '/v1/sessions/own/..;a=b/other',
  '/v1/sessions/own/;/other',
  '/v1/sessions/./other',
  '/v1/sessions//other',
  '/v1/sessions//own',
  '/v1/sessions/own//',
  '/v1/sessions/own/%252e%252e/other',
  '/v1/sessions/own%2fevents',
  '/v1/sessions/own%00',
  '/v1/sessions/own%0a/events',
  '/v1/sessions/%ff',
  '/v1/sessions/%e0%a4%a',
  '/v1/sessions/own%',
  '/v1/sessions/own#/../other',
  '/v1/sessions/own/|/other',
  '/v1/skills/../environments',
  '/v1/skills/%2e%2e/sessions/other',
  '/v1/skills/..',
  '/v1/memory_stores/..%2fsessions%2fother',
  '/v1/%73essions/../sessions/other',
  'http://other.example/v1/sessions/../other',
];

t.test('a path that could be read in two ways is refused, and does not reach the application', async (t) => {
  const server = await upstreamServer(t);
  const { token } = await server.handOut('own');
  await server.handOut('other');
  for (const path of TRICKS) {
    for (const credential of [token, server.environmentKey, OPERATOR_KEY]) {
      const answer = await exchange(server.url, head(server, 'GET', path, { authorization: `Bearer ${credential}` }));
      checkRefusal(t, answer, 404, path);
    }
  }
  checkRefusal(
    t,
    await exchange(server.url, head(server, 'GET', TRICKS[0] ?? '', { authorization: '' })),
    401,
    'first',
  );
  t.strictSame(server.application.arrived, []);
});

t.test('what is spelled another way and is the same is the same session', async (t) => {
  const server = await upstreamServer(t);
  const { token } = await server.handOut('own-session');
  const same = ['/v1/sessions/own-session/', '/v1/sessions/%6fwn%2Dsession', '/v1/sessions/own-session?x=/../other'];
  for (const path of same) {
    const answer = await exchange(server.url, head(server, 'GET', path, { authorization: `Bearer ${token}` }));
    t.equal(answer.status, 200, path);
    t.equal(server.last().url, path, 'passed on as it came');
  }
  const not = ['/v1/sessions/own-session;x', '/v1/sessions/OWN-SESSION', '/v1/sessions/own-session%20'];
  for (const path of not) {
    const answer = await exchange(server.url, head(server, 'GET', path, { authorization: `Bearer ${token}` }));
    checkRefusal(t, answer, 403, path);
  }
  for (const path of ['/v1/sessions/', '/v1/sessions?id=own-session']) {
    for (const credential of [token, server.environmentKey]) {
      const answer = await exchange(server.url, head(server, 'GET', path, { authorization: `Bearer ${credential}` }));
      checkRefusal(t, answer, 403, path);
    }
  }
});

t.test('what only begins like the paths of the application is no route', async (t) => {
  const server = await upstreamServer(t);
  for (const path of [
    '/v1/sessionsx',
    '/v1/sessions.json',
    '/v1/skill',
    '/v1/memory_store/x',
    '/V1/sessions',
    '/sessions',
  ]) {
    checkRefusal(t, await server.call('GET', path, { as: OPERATOR_KEY }), 404, path);
  }
  t.equal((await server.call('GET', server.work('/stats'))).status, 200, 'our own routes are ours');
  t.strictSame(server.application.arrived, []);
});

t.test('a base path is kept in front, also by a relative redirect', async (t) => {
  const server = await upstreamServer(t, { basePath: '/internal/agents/' });
  const { application, url, call, last } = server;
  t.equal((await call('GET', '/v1/skills/a?b=%2F', { as: OPERATOR_KEY })).status, 200);
  t.equal(last().url, '/internal/agents/v1/skills/a?b=%2F');
  application.answer((response) => response.writeHead(307, { location: '/internal/agents/v1/skills/b' }).end());
  const answer = await exchange(url, head(server, 'GET', '/v1/skills/a', { authorization: `Bearer ${OPERATOR_KEY}` }));
  t.equal(answer.status, 307);
  t.equal(answer.headers.get('location'), '/v1/skills/b');
});

t.test('without the variable nothing is passed on', async (t) => {
  const server = await testServer(t);
  for (const path of ['/v1/skills', '/v1/skills/a', '/v1/memory_stores/a/memories']) {
    checkRefusal(t, await server.call('GET', path, { as: OPERATOR_KEY }), 404, path);
  }
});
