import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { request as httpRequest } from 'node:http';
import { PassThrough } from 'node:stream';
import t from 'tap';
import { bodyOf } from '../../src/http/upstream/streams.ts';
import { upstreamServer } from '../support/application.ts';
import { OPERATOR_KEY, until } from '../support/harness.ts';
import { exchange, head } from '../support/wire.ts';

const asOperator = { authorization: `Bearer ${OPERATOR_KEY}` };
const digest = (bytes: Buffer) => createHash('sha256').update(bytes).digest('hex');

t.test('large and odd bodies arrive byte for byte, under the content type that they were sent with', async (t) => {
  const { call, last } = await upstreamServer(t);
  const form = new FormData();
  form.append('files[]', new Blob([randomBytes(100_000)]), 'SKILL.md');
  const multipart = new Response(form);
  const cells: [what: string, contentType: string, body: Buffer][] = [
    ['5 MiB of JSON', 'application/json', Buffer.from(JSON.stringify({ text: 'x'.repeat(5 * 1024 * 1024) }))],
    ['33 MiB', 'application/json', randomBytes(33 * 1024 * 1024)],
    ['multipart', multipart.headers.get('content-type') ?? '', Buffer.from(await multipart.arrayBuffer())],
    ['JSON with a charset', 'application/json; charset=utf-16', Buffer.from([0xff, 0xfe, 0, 0, 0x7b])],
    ['no JSON at all', 'application/json', Buffer.from('{"half":')],
    ['text', 'text/plain', Buffer.from('plain')],
    ['a content type that is none', 'nonsense', Buffer.from('?')],
    ['a content type of nothing', '', Buffer.from('?')],
  ];
  for (const [what, contentType, raw] of cells) {
    const answer = await call('POST', '/v1/skills', {
      as: OPERATOR_KEY,
      raw,
      headers: { 'content-type': contentType },
    });
    t.equal(answer.status, 200, what);
    t.strictSame(last().headers['content-type'], [contentType], what);
    t.strictSame(last().headers['content-length'], [`${raw.length}`], what);
    t.equal(digest(last().body()), digest(raw), what);
  }
});

t.test('a request without a body arrives without one, whatever its content type says', async (t) => {
  const server = await upstreamServer(t);
  const { url, call, last } = server;
  const headers = { 'content-type': 'application/json' };
  for (const method of ['GET', 'POST', 'DELETE']) {
    t.equal((await call(method, '/v1/skills', { as: OPERATOR_KEY, headers })).status, 200, method);
    t.equal(last().body().length, 0, method);
    t.notOk(last().headers['transfer-encoding'], `${method}: and none is announced`);
    t.strictSame(last().headers['content-type'], ['application/json']);
  }
  const unsaid = await exchange(url, head(server, 'DELETE', '/v1/skills', { ...asOperator, ...headers }));
  t.equal(unsaid.status, 200, 'nor says how long it is');
  t.notOk(last().headers['transfer-encoding']);
  const ofGet = head(server, 'GET', '/v1/skills', { ...asOperator, 'content-length': '4' });
  t.equal((await exchange(url, `${ofGet}body`)).status, 200, 'the body of a GET is no body');
  t.equal(last().body().length, 0);
  t.notOk(last().headers['content-length']);
});

t.test('a body is passed on while it comes, also one of unknown length that waits to be asked for', async (t) => {
  const { url, application, last } = await upstreamServer(t);
  const headers = { ...asOperator, expect: '100-continue', 'content-type': 'application/jsonl' };
  const request = httpRequest(`${url}/v1/sessions/s/events`, { method: 'POST', headers });
  request.flushHeaders();
  await once(request, 'continue');
  request.write('first\n');
  await until('the first line to arrive', () => application.arrived.length === 1 && `${last().body()}` === 'first\n');
  t.notOk(last().isComplete(), 'the rest is still to come');
  t.notOk('expect' in last().headers);
  request.end('second\n');
  const [response] = await once(request, 'response');
  response.resume();
  t.equal(response.statusCode, 200);
  t.equal(`${last().body()}`, 'first\nsecond\n');
});

t.test('a client that leaves in the middle of its body is not taken for one that ended', async (t) => {
  const { url, application, last, app } = await upstreamServer(t);
  application.answer(() => {});
  const request = httpRequest(`${url}/v1/skills`, { method: 'POST', headers: asOperator });
  request.on('error', () => {});
  request.write('half');
  await until('the half to arrive', () => application.arrived.length === 1 && last().body().length === 4);
  request.destroy();
  await until('the request to break off', () => last().isOver());
  t.notOk(last().isComplete());
  t.equal((await app.inject('/healthz')).statusCode, 200, 'and the server goes on');
});

t.test('an answer that comes before the body has ended is passed on, and the client may leave then', async (t) => {
  const { url, application, app, call } = await upstreamServer(t);
  application.answer((response) => response.writeHead(413, { 'content-length': 2 }).end('{}'));
  for (let round = 0; round < 5; round++) {
    const request = httpRequest(`${url}/v1/skills`, { method: 'POST', headers: asOperator });
    request.on('error', () => {});
    request.write('half');
    const [response] = await once(request, 'response');
    t.equal(response.statusCode, 413);
    response.resume();
    request.write('more');
    request.destroy();
    await until(
      'the connection to be gone',
      () => new Promise((tell) => app.server.getConnections((_, n) => tell(n <= 1))),
    );
  }
  t.equal((await call('GET', '/healthz')).status, 200);
});

t.test('a body that breaks off when nobody reads it any more breaks nothing else', async (t) => {
  const payload = new PassThrough();
  const body = bodyOf(payload);
  payload.destroy(new Error('the client left'));
  await until('it to be closed', () => body.closed);
  t.match(body.errored, { message: 'the client left' });
});

t.test('bodies of our own routes are still limited', async (t) => {
  const server = await upstreamServer(t);
  const tooLarge = head(server, 'POST', '/v1/environments', { ...asOperator, 'content-length': '1048577' });
  t.equal((await exchange(server.url, tooLarge)).status, 413);
  t.equal(server.app.server.requestTimeout, 600_000, 'and a slow line has ten minutes for a large one');
});
