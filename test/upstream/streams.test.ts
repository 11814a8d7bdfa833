import { PassThrough, Writable } from 'node:stream';
import type { FastifyReply } from 'fastify';
import t, { type Test } from 'tap';
import { passEvents } from '../../src/http/upstream/streams.ts';
import { type Upstream, upstreamServer } from '../support/application.ts';
import { OPERATOR_KEY, until } from '../support/harness.ts';

const headers = { 'x-api-key': OPERATOR_KEY, accept: 'text/event-stream' };

/** Each answer of the application is a stream of events, of which `send` writes to the last one. */
function streaming({ application }: Upstream, contentType = 'text/event-stream') {
  let send = (_: string) => {};
  let end = () => {};
  application.answer((response) => {
    response.writeHead(200, { 'content-type': contentType, 'x-accel-buffering': 'no' }).flushHeaders();
    send = (frame) => void response.write(frame);
    end = () => void response.end();
  });
  return { send: (frame: string) => send(frame), end: () => end() };
}

async function attach(t: Test, { url }: { url: string }) {
  const client = new AbortController();
  t.teardown(() => client.abort());
  const signal = AbortSignal.any([client.signal, AbortSignal.timeout(10_000)]);
  const answer = await fetch(`${url}/v1/sessions/s/events/stream`, { headers, signal });
  const reader = answer.body?.pipeThrough(new TextDecoderStream()).getReader();
  if (reader === undefined) throw new Error('no body');
  return { answer, next: () => reader.read(), leave: () => client.abort() };
}

for (const contentType of ['text/event-stream', 'text/event-stream; charset=utf-8']) {
  t.test(`${contentType}: headers come before the first event, and each event at once`, async (t) => {
    const server = await upstreamServer(t);
    const { send, end } = streaming(server, contentType);
    const { answer, next } = await attach(t, server);
    t.match([answer.status, answer.headers.get('content-type')], [200, contentType]);
    t.match(answer.headers.get('request-id'), /^req_/);
    t.equal(answer.headers.get('cache-control'), 'no-store');
    t.equal(answer.headers.get('x-accel-buffering'), 'no');
    for (const n of [1, 2, 3]) {
      send(`event: session.status_idle\ndata: ${n}\n\n`);
      t.strictSame(await next(), { done: false, value: `event: session.status_idle\ndata: ${n}\n\n` });
    }
    t.notOk(server.last().isOver(), 'the stream is open all the while');
    end();
    t.equal((await next()).done, true, 'it ends when the application ends it');
  });
}

t.test('a client that leaves a quiet stream closes it at the application', async (t) => {
  const server = await upstreamServer(t);
  streaming(server);
  const { leave } = await attach(t, server);
  leave();
  await until('the stream to be closed there', () => server.last().isOver());
});

t.test('as many streams as are asked for are open at once', async (t) => {
  const server = await upstreamServer(t);
  streaming(server);
  const attached = await Promise.all(Array.from({ length: 200 }, () => attach(t, server)));
  t.equal(server.application.arrived.filter((one) => !one.isOver()).length, attached.length);
});

t.test('draining ends the streams in order, at once, and lets other requests finish', async (t) => {
  const server = await upstreamServer(t);
  const { application, app, call, url } = server;
  const { send } = streaming(server);
  const idle = await attach(t, server);
  const { next } = await attach(t, server);
  send('event: ping\n\n');
  const [ofIdle, stream] = application.arrived;
  let answerNow = () => {};
  application.answer((response, request) => {
    if (request.url?.endsWith('late')) {
      answerNow = () => response.writeHead(200, { 'content-type': 'text/event-stream' }).flushHeaders();
    } else if (request.url?.endsWith('half')) {
      response.writeHead(200).write('one, ');
      answerOther = () => response.end('two');
    } else {
      answerLater = () => response.end('{"done":true}');
    }
  });
  let answerLater = () => {};
  let answerOther = () => {};
  const later = call('POST', '/v1/sessions/s/events', { as: OPERATOR_KEY, body: { events: [] } });
  const half = await fetch(`${url}/v1/sessions/s/half`, { headers });
  const late = fetch(`${url}/v1/sessions/s/late`, { headers });
  await until('all to arrive', () => application.arrived.length === 5);

  app.drain();
  const closed = app.close();
  const isOver = closed.then(() => true);
  t.equal((await idle.next()).done, true, 'an end, not a cut');
  t.equal((await next()).value, 'event: ping\n\n', 'nothing that came before it is lost');
  t.equal((await next()).done, true);
  await until('the application to see them go', () => stream?.isOver() === true && ofIdle?.isOver() === true);
  answerNow();
  t.equal(await (await late).text(), '', 'a stream that begins too late ends at once');
  answerLater();
  answerOther();
  const finished = await later;
  t.match([finished.status, finished.text, finished.headers.get('connection')], [200, '{"done":true}', 'close']);
  t.equal(await half.text(), 'one, two');
  t.equal(await isOver, true, 'and nothing holds up the end');
  await until('no connection to be kept', () => application.connectionCount() === 0);
});

t.test('a reader that is behind when the server leaves gets what was passed on, and then the end', async (t) => {
  const server = await upstreamServer(t);
  const { application, app } = server;
  const frame = `data: ${'x'.repeat(65_536)}\n\n`;
  let isFull = false;
  application.answer((response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    while (response.writableLength < 32 * 1024 * 1024) response.write(frame);
    isFull = true;
  });
  const { next } = await attach(t, server);
  await until('the way to be full', () => isFull);
  app.drain();
  let read = '';
  for (let one = await next(); !one.done; one = await next()) read += one.value;
  t.ok(read.length > 0 && read.length < 32 * 1024 * 1024, `${read.length} characters were on the way`);
  t.ok(frame.repeat(Math.ceil(read.length / frame.length)).startsWith(read), 'in order');
});

t.test('an event that comes after the end was written is not written', async (t) => {
  const written: string[] = [];
  let flush = () => {};
  const raw = new Writable({
    write(chunk, _, done) {
      written.push(`${chunk}`);
      flush = done;
    },
  });
  raw.on('error', (error) => t.fail(error.message));
  Object.assign(raw, { writeHead() {}, flushHeaders() {} });
  const events = new PassThrough();
  const end = passEvents({ raw, hijack() {}, getHeaders: () => ({}) } as unknown as FastifyReply, events);
  events.write('before');
  await until('it is written', () => written.length === 1);
  end();
  events.write('after');
  t.equal(`${await new Promise((read) => events.once('readable', () => read(events.read())))}`, 'after', 'it has come');
  flush();
  await until('all to be closed', () => raw.closed && events.closed);
  t.ok(raw.writableFinished, 'in order');
  t.strictSame(written, ['before']);
});
