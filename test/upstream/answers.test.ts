import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import { pino } from 'pino';
import t, { type Test } from 'tap';
import { upstreamServer } from '../support/application.ts';
import { OPERATOR_KEY, testServer, until } from '../support/harness.ts';
import { listenOnLoopback } from '../support/loopback.ts';
import { freePort } from '../support/postgres.ts';
import { checkRefusal, head } from '../support/wire.ts';

const as = OPERATOR_KEY;

/** What is answered to these bytes, one request after the other; the last one closes. Nothing is read before all is sent. */
async function statusesOf(t: Test, url: string, bytes: string): Promise<number[]> {
  const socket = connect(Number(new URL(url).port), '127.0.0.1').setTimeout(10_000, () => socket.destroy());
  t.teardown(() => socket.destroy());
  socket.on('error', () => {}).pause();
  await Promise.race([new Promise((sent) => socket.write(bytes, sent)), once(socket, 'close')]);
  let answers = '';
  for await (const chunk of socket) answers += chunk;
  return [...answers.matchAll(/HTTP\/1\.1 (\d{3}) /g)].map(([, status]) => Number(status));
}

t.test('status, body and headers of the application pass through, also of its refusals', async (t) => {
  const { application, url, call } = await upstreamServer(t);
  for (const status of [200, 201, 302, 400, 401, 404, 409, 412, 429, 500, 502, 503]) {
    const body = `{"of":"the application","status":${status}}`;
    const before = application.arrived.length;
    application.answer((response) =>
      response.writeHead(status, { 'x-should-retry': 'false', 'retry-after': '7' }).end(body),
    );
    const answer = await fetch(`${url}/v1/skills`, { headers: { 'x-api-key': as }, redirect: 'manual' });
    t.equal(answer.status, status);
    t.equal(await answer.text(), body, `${status}`);
    t.match(Object.fromEntries(answer.headers), {
      'x-should-retry': 'false',
      'retry-after': '7',
      'request-id': /^req_/,
    });
    t.equal(application.arrived.length, before + 1, `${status} is not asked for again`);
  }
  application.answer((response) => response.writeHead(204).end());
  t.match(await call('DELETE', '/v1/skills/a', { as }), { status: 204, text: '' });
  application.answer((response) => response.writeHead(200, { 'content-length': '1000' }).end());
  const head = await call('HEAD', '/v1/skills/a', { as });
  t.match([head.status, head.headers.get('content-length'), head.text], [200, '1000', '']);
});

t.test(
  'the request id is ours, what is not said of caching is no-store, and what is for one connection stays there',
  async (t) => {
    const { application, call } = await upstreamServer(t);
    application.answer((response) => {
      response.setHeader('set-cookie', ['a=1', 'b=2']);
      response.writeHead(200, {
        'request-id': 'req_theirs',
        'content-encoding': 'identity',
        connection: 'keep-alive, x-hop',
        'keep-alive': 'timeout=77',
        'x-hop': '1',
        'proxy-authenticate': 'Basic',
        trailer: 'x-later',
        etag: '"1"',
      });
      response.end('{}');
    });
    const { headers } = await call('GET', '/v1/skills', { as });
    t.match(headers.get('request-id'), /^req_(?!theirs)/);
    t.equal(headers.get('cache-control'), 'no-store');
    t.strictSame(headers.getSetCookie(), ['a=1', 'b=2']);
    t.match([headers.get('etag'), headers.get('content-encoding')], ['"1"', 'identity']);
    for (const name of ['x-hop', 'proxy-authenticate', 'trailer']) t.equal(headers.get(name), null, name);
    t.not(headers.get('keep-alive'), 'timeout=77');

    application.answer((response) => response.writeHead(200, { 'cache-control': 'private, max-age=60' }).end('{}'));
    t.equal((await call('GET', '/v1/skills', { as })).headers.get('cache-control'), 'private, max-age=60');
  },
);

t.test('an application that cannot be reached is unavailable, also to who sends a large body', async (t) => {
  const sessionsUpstreamUrl = `http://127.0.0.1:${await freePort()}`;
  const server = await testServer(t, { sessionsUpstreamUrl });
  const { call, url } = server;
  for (const method of ['GET', 'HEAD', 'DELETE']) {
    const answer = await call(method, '/v1/skills', { as });
    if (method === 'HEAD') t.match([answer.status, answer.headers.get('retry-after')], [503, '1']);
    else checkRefusal(t, answer, 503, method);
  }
  for (const raw of ['{}', 'x'.repeat(20 * 1024 * 1024)]) {
    checkRefusal(t, await call('POST', '/v1/skills', { as, raw }), 503, `${raw.length} bytes`);
  }
  const length = 20 * 1024 * 1024;
  const post = head(server, 'POST', '/v1/skills', {
    'x-api-key': as,
    'content-length': `${length}`,
    connection: 'keep-alive',
  });
  const next = head(server, 'GET', '/healthz');
  const statuses = await statusesOf(t, url, `${post}${'x'.repeat(length)}${next}`);
  t.strictSame(statuses, [503, 200], 'who sends all before it reads is answered, and what it asks next, too');
});

t.test('an application that breaks off before it answers, or answers no HTTP, is unavailable', async (t) => {
  const answers = [
    '',
    'HTTP/1.1 200 OK\r\ncontent-le',
    'SSH-2.0-x\r\n\r\n',
    'HTTP/1.1 999 What\r\nx-odd: 1\r\ncontent-length: 9\r\n\r\nsomething',
  ];
  for (const answer of answers) {
    const broken = createServer((socket) => void socket.on('error', () => {}).once('data', () => socket.end(answer)));
    const port = await listenOnLoopback(t, broken);
    const log: string[] = [];
    const logger = pino({ level: 'warn' }, { write: (line) => void log.push(JSON.parse(line).msg) });
    const { call } = await testServer(t, { sessionsUpstreamUrl: `http://127.0.0.1:${port}`, logger });
    for (const [method, raw] of [['GET'], ['POST', 'x'.repeat(100_000)]] as const) {
      const refused = await call(method, '/v1/sessions/s/events', { as, ...(raw === undefined ? {} : { raw }) });
      checkRefusal(t, refused, 503, `${method}: ${answer}`);
      t.equal(refused.headers.get('x-odd'), null);
    }
    t.notMatch(log.join('\n'), /response will send/, 'it is answered once');
  }
});

t.test('an answer that breaks off in the middle breaks off for the caller', async (t) => {
  const { application, url, call } = await upstreamServer(t);
  for (const type of ['application/json', 'text/event-stream']) {
    let cut = () => {};
    application.answer((response) => {
      response.writeHead(200, { 'content-type': type });
      response.write('{"half":');
      cut = () => response.socket?.destroy();
    });
    const answer = await fetch(`${url}/v1/sessions/s/events`, { headers: { 'x-api-key': as } });
    const reader = answer.body?.getReader();
    t.equal(new TextDecoder().decode((await reader?.read())?.value), '{"half":', type);
    cut();
    await t.rejects(async () => void (await reader?.read()), `${type}: not an end`);
  }
  t.equal((await call('GET', '/healthz')).status, 200);
});

t.test('a client that leaves before the application has answered breaks nothing', async (t) => {
  const { application, call, last } = await upstreamServer(t);
  let answerNow = () => {};
  application.answer((response) => {
    answerNow = () => response.writeHead(200, { 'content-type': 'text/event-stream' }).write('event: ping\n\n');
  });
  for (const options of [{}, { body: { events: [] } }]) {
    const before = application.arrived.length;
    const client = new AbortController();
    const method = 'body' in options ? 'POST' : 'GET';
    const leaving = call(method, '/v1/sessions/s', { as, signal: client.signal, ...options });
    leaving.catch(() => {});
    await until('it arrives', () => application.arrived.length === before + 1 && last().isComplete());
    client.abort();
    await t.rejects(leaving);
    t.equal((await call('GET', '/healthz')).status, 200);
    answerNow();
    await until('the connection to the application is closed', () => last().isOver());
  }
});
