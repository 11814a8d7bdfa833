import { createServer } from 'node:http';
import t from 'tap';
import { buildApp } from '../../src/http/app.ts';
import { createCallers } from '../../src/control/credentials.ts';
import { frailProxy } from '../support/frail-proxy.ts';
import { OPERATOR_KEY, until } from '../support/harness.ts';
import { listenOnLoopback } from '../support/loopback.ts';
import { remoteServer } from '../support/remote.ts';

const APPEND = /^POST \/control\/v1\/sessions\/[^/]+\/events$/;
const CREATE = /^POST \/control\/v1\/sessions$/;
const LIST = /^GET \/v1\/sessions\/[^/]+\/events\?/;
const STREAM = /^GET \/v1\/sessions\/[^/]+\/events\/stream$/;

/** Between tries it waits for nothing. */
const sleep = () => Promise.resolve();

t.test('answers that get lost make neither a second session nor a second call', async (t) => {
  const server = await remoteServer(t);
  const proxy = await frailProxy(t, server.url);
  const tools = server.client({ baseUrl: proxy.url, sleep });
  proxy.drop(CREATE, 2);
  const hands = await tools.session(server.environment.id);
  t.match((await server.call('GET', '/v1/sessions')).json.data, [{ id: hands.id }]);

  proxy.drop(APPEND, 2);
  const call = hands.call('bash', { command: 'charge the card' });
  await until('two answers more to be lost', () => proxy.dropped() === 4);
  const [callId = ''] = await server.untilCalled(hands);
  await server.answer(hands, callId, 'charged');
  t.match(await call, { text: 'charged', callId });
  t.equal((await server.eventsOf(hands, 'agent.tool_use')).length, 1);
  t.equal(proxy.requests.filter((line) => APPEND.test(line)).length, 3);

  proxy.drop(APPEND);
  await hands.say('done');
  t.equal((await server.eventsOf(hands, 'agent.message')).length, 1);
});

t.test('a result that overtakes the answer to its call is the result of the call', async (t) => {
  const server = await remoteServer(t);
  const proxy = await frailProxy(t, server.url);
  let release = () => {};
  const released = new Promise<void>((resolve) => {
    release = resolve;
  });
  const tools = server.client({ baseUrl: proxy.url, sleep: () => released });
  const hands = await tools.session(server.environment.id);
  proxy.drop(APPEND);
  const heard: string[] = [];
  const events = hands.events();
  const call = hands.call('bash');
  const [callId = ''] = await server.untilCalled(hands);
  await server.answer(hands, callId, 'early');
  for await (const { type } of events) {
    heard.push(type);
    if (type === 'user.tool_result') break;
  }
  t.equal(proxy.requests.filter((line) => APPEND.test(line)).length, 1, 'nothing is known of the call yet');
  release();
  t.match(await call, { text: 'early', callId });
});

t.test('a stream that is cut is taken up again, and what came meanwhile is not lost', async (t) => {
  const server = await remoteServer(t);
  const proxy = await frailProxy(t, server.url);
  const hands = await server.client({ baseUrl: proxy.url, sleep }).session(server.environment.id);
  const calls = [hands.call('bash', { n: 1 }), hands.call('bash', { n: 2 })];
  const [first = '', second = ''] = await server.untilCalled(hands, 2);
  proxy.block(STREAM);
  proxy.cut();
  const tries = () => proxy.requests.filter((line) => STREAM.test(line)).length;
  await until('it tries in vain', () => tries() > 10);
  await server.answer(hands, first, 'while it was cut');
  proxy.block(undefined);
  t.equal((await Promise.race(calls)).text, 'while it was cut');
  await server.answer(hands, second, 'after it');
  t.same((await Promise.all(calls)).map(({ text }) => text).sort(), ['after it', 'while it was cut']);
});

t.test('a list that fails is asked for again: nothing that only it holds is lost', async (t) => {
  const server = await remoteServer(t);
  const proxy = await frailProxy(t, server.url);
  const hands = await server.client({ baseUrl: proxy.url, sleep, retriesMax: 2 }).session(server.environment.id);
  const call = hands.call('bash');
  const [callId = ''] = await server.untilCalled(hands);
  proxy.block(STREAM);
  proxy.cut();
  await until('it tries in vain', () => proxy.requests.filter((line) => STREAM.test(line)).length > 5);
  await server.answer(hands, callId, 'listed only');
  const before = proxy.requests.filter((line) => LIST.test(line)).length;
  proxy.block(LIST);
  const lists = () => proxy.requests.filter((line) => LIST.test(line)).length - before;
  await until('more lists to fail than one call tries', () => lists() > 5);
  // Comes by a stream that is attached, while what was before it is still unknown.
  await hands.say('meanwhile');
  proxy.block(undefined);
  t.equal((await call).text, 'listed only');
});

t.test('a server that is started again on its port is found again', async (t) => {
  const server = await remoteServer(t);
  const { database, queue, app, url } = server;
  const hands = await server.client().session(server.environment.id);
  const call = hands.call('bash');
  const [callId = ''] = await server.untilCalled(hands);
  app.drain();
  app.server.closeAllConnections();
  await app.close();
  const late = hands.call('bash', { n: 2 }); // asked for while there is no server

  const callers = createCallers({ database, operatorKey: OPERATOR_KEY });
  const next = buildApp({ queue, database, callers, publicUrl: () => url });
  t.teardown(async () => {
    next.server.closeAllConnections();
    await next.close();
    await callers.close();
  });
  await next.listen({ host: '127.0.0.1', port: Number(new URL(url).port) });
  const isThere = () =>
    server.call('GET', '/healthz').then(
      () => true,
      () => false, // by a connection of before
    );
  await until('the server is there', isThere);
  await server.answer(hands, callId, 'over the restart');
  t.equal((await call).text, 'over the restart');
  const [, lateId = ''] = await server.untilCalled(hands, 2);
  await server.answer(hands, lateId, 'after it');
  t.equal((await late).text, 'after it');
});

t.test('a stream that says nothing is taken for lost', async (t) => {
  const server = await remoteServer(t);
  let silent = 0;
  const mute = createServer((_, response) => {
    silent++;
    response.writeHead(200, { 'content-type': 'text/event-stream' }).flushHeaders();
  });
  const port = await listenOnLoopback(t, mute);
  const tools = server.client({
    sleep,
    silenceMsMax: 100,
    fetch: (url, init) => fetch(silent < 2 && String(url).endsWith('/stream') ? `http://127.0.0.1:${port}` : url, init),
  });
  const hands = await tools.session(server.environment.id);
  const call = hands.call('bash');
  const [callId = ''] = await server.untilCalled(hands);
  await until('it gave up two of them', () => silent === 2);
  await server.answer(hands, callId, 'by the third');
  t.equal((await call).text, 'by the third');
});

t.test('a key that is revoked rejects what is open', async (t) => {
  const server = await remoteServer(t);
  const issued = await server.call('POST', '/control/v1/keys', { as: OPERATOR_KEY, body: { name: 'agent' } });
  const proxy = await frailProxy(t, server.url);
  const hands = await server
    .client({ baseUrl: proxy.url, apiKey: issued.json.key, sleep })
    .session(server.environment.id);
  const call = hands.call('bash');
  await server.untilCalled(hands);
  await server.call('DELETE', `/control/v1/keys/${issued.json.id}`, { as: OPERATOR_KEY });
  await Promise.all([
    t.rejects(call, { name: 'ControlError', status: 401 }),
    until('the key is known to be revoked', async () => {
      proxy.cut();
      return (await server.call('GET', `/v1/sessions/${hands.id}`, { as: issued.json.key })).status === 401;
    }),
  ]);
});
