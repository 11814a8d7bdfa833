import { writeFileSync } from 'node:fs';
import { createServer } from 'node:https';
import { join } from 'node:path';
import t from 'tap';
import { application, vouchedIn } from '../support/application.ts';
import { selfSigned } from '../support/certificate.ts';
import { caller, OPERATOR_KEY, testServer } from '../support/harness.ts';
import { listenOnLoopback } from '../support/loopback.ts';
import { freshDatabase, startMain, testFolder } from '../support/process.ts';
import { checkRefusal } from '../support/wire.ts';

t.test('what the URL holds of a user is what the application is shown, in place of our credentials', async (t) => {
  const owner = await application(t);
  for (const [user, shown] of Object.entries({
    'leasehold:p%40ss': 'leasehold:p@ss',
    ':only': ':only',
    '%ff': '\ufffd:',
  })) {
    const { call } = await testServer(t, { sessionsUpstreamUrl: owner.url.replace('//', `//${user}@`) });
    t.equal((await call('GET', '/v1/skills', { as: OPERATOR_KEY })).status, 200);
    const [authorization = ''] = owner.arrived.at(-1)?.headers.authorization ?? [];
    t.equal(`${Buffer.from(authorization.replace(/^Basic /, ''), 'base64')}`, shown);
  }
});

t.test('an application whose certificate nobody vouches for is told nothing', async (t) => {
  let askedCount = 0;
  const secure = createServer(selfSigned, (_, response) => {
    askedCount++;
    response.end('{}');
  });
  const sessionsUpstreamUrl = `https://127.0.0.1:${await listenOnLoopback(t, secure)}`;
  const { call } = await testServer(t, { sessionsUpstreamUrl });
  checkRefusal(t, await call('GET', '/v1/skills', { as: OPERATOR_KEY }), 503, 'self-signed');
  t.equal(askedCount, 0);

  const authority = join(testFolder(t), 'authority.pem');
  writeFileSync(authority, selfSigned.cert);
  const { url } = await startMain(t, {
    DATABASE_URL: await freshDatabase(t),
    LEASEHOLD_API_KEY: OPERATOR_KEY,
    SESSIONS_UPSTREAM_URL: sessionsUpstreamUrl,
    NODE_EXTRA_CA_CERTS: authority,
  });
  t.equal((await caller(url)('GET', '/v1/skills', { as: OPERATOR_KEY })).status, 200, 'one that is vouched for is');
});

t.test('the process passes sessions on, logs no password of the URL, and leaves a stream at once', async (t) => {
  const owner = await application(t);
  const server = await startMain(t, {
    DATABASE_URL: await freshDatabase(t),
    LEASEHOLD_API_KEY: OPERATOR_KEY,
    SESSIONS_UPSTREAM_URL: `${owner.url.replace('//', '//leasehold:hunter2@')}/base`,
    SHUTDOWN_GRACE_SECONDS: '60',
    LOG_LEVEL: 'trace',
  });
  const call = caller(server.url, OPERATOR_KEY);
  t.equal((await call('POST', '/v1/sessions', { body: { title: 'a' } })).status, 200);
  t.match(owner.arrived[0], { method: 'POST', url: '/base/v1/sessions' });
  t.strictSame(owner.arrived.map(vouchedIn), [{ caller: ['api'], 'key-id': ['operator'] }]);
  owner.answer((response) => response.destroy());
  checkRefusal(t, await call('GET', '/v1/skills'), 503, 'gone');
  owner.answer((response) => response.writeHead(200, { 'content-type': 'text/event-stream' }).flushHeaders());
  const stream = await fetch(`${server.url}/v1/sessions/s/events/stream`, { headers: { 'x-api-key': OPERATOR_KEY } });

  server.child.kill('SIGTERM');
  t.equal(await stream.text(), '', 'it ends in order');
  t.strictSame(await server.ended(), { code: 0, signal: null }, 'well within the grace');
  const complaints = server.log().filter(({ level }) => Number(level) > 30);
  t.match(complaints, [{ msg: 'response errored' }, { msg: 'request failed' }], 'of the one that was gone');
  t.notMatch(server.output(), /fetching from remote server/);
  t.notMatch(server.output(), /hunter2/);
  t.notMatch(server.output(), new RegExp(Buffer.from('leasehold:hunter2').toString('base64')));
});
