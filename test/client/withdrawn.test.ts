import t from 'tap';
import { frailProxy } from '../support/frail-proxy.ts';
import { until } from '../support/harness.ts';
import { type Remote, remoteServer } from '../support/remote.ts';

const APPEND = /^POST \/control\/v1\/sessions\/[^/]+\/events$/;
const STREAM = /^GET \/v1\/sessions\/[^/]+\/events\/stream$/;
const sleep = () => Promise.resolve();

const untilWithdrawn = ({ eventsOf }: Remote, hands: { id: string }) =>
  until('it is denied', async () => (await eventsOf(hands, 'user.tool_confirmation')).length === 1);

t.test('a call that is not answered in time is rejected and withdrawn: no worker is told to run it', async (t) => {
  const server = await remoteServer(t);
  const hands = await server.tools.session(server.environment.id);
  // In time to be stored, however busy the machine is: the time counts from the beginning.
  await t.rejects(hands.call('bash', {}, { timeoutMs: 3_000 }), { name: 'RemoteToolError', code: 'timed_out' });
  const [callId = ''] = await server.untilCalled(hands);
  await untilWithdrawn(server, hands);
  t.match(await server.eventsOf(hands, 'user.tool_confirmation'), [{ tool_use_id: callId, result: 'deny' }]);
  t.equal(await server.answer(hands, callId), 400, 'a late result is refused');
});

t.test('the time counts from the beginning, also while nothing is attached', async (t) => {
  const server = await remoteServer(t);
  const proxy = await frailProxy(t, server.url);
  const hands = await server.client({ baseUrl: proxy.url }).session(server.environment.id);
  proxy.block(STREAM);
  const other = hands.call('bash', { n: 2 });
  await t.rejects(hands.call('bash', { n: 1 }, { timeoutMs: 50 }), { code: 'timed_out' });
  proxy.block(undefined);
  const [callId = ''] = await server.untilCalled(hands);
  await server.answer(hands, callId);
  await other;
  t.match(await server.eventsOf(hands, 'agent.tool_use'), [{ input: { n: 2 } }], 'it was never appended');
});

t.test('a call whose signal is aborted is rejected with its reason, as it is, and withdrawn', async (t) => {
  const server = await remoteServer(t);
  const hands = await server.tools.session(server.environment.id);
  const reason = { because: 'the user said so' };
  const aborting = new AbortController();
  const call = hands.call('bash', {}, { signal: aborting.signal });
  const other = hands.call('bash', { n: 2 });
  await server.untilCalled(hands, 2);
  aborting.abort(reason);
  t.equal(await call.catch((error: unknown) => error), reason);
  await untilWithdrawn(server, hands);
  const [denied] = (await server.eventsOf(hands, 'user.tool_confirmation')) as unknown as { tool_use_id: string }[];
  const calls = await server.untilCalled(hands, 2);
  const open = calls.filter((id) => id !== denied?.tool_use_id);
  t.equal(open.length, 1);
  await server.answer(hands, open[0] ?? '', 'goes on');
  t.equal((await other).text, 'goes on', 'its neighbour is left alone');
});

t.test('a signal that is aborted already lets nothing be sent', async (t) => {
  const server = await remoteServer(t);
  const sent: string[] = [];
  const tools = server.client({
    fetch: (url, init) => {
      sent.push(String(url));
      return fetch(url, init);
    },
  });
  const hands = await tools.session(server.environment.id);
  const reason = new Error('too late');
  await t.rejects(hands.call('bash', {}, { signal: AbortSignal.abort(reason) }), reason);
  t.equal(sent.length, 1, 'the session');
});

t.test('aborted while the answer to its append is lost, a call that was stored is withdrawn', async (t) => {
  const server = await remoteServer(t);
  const proxy = await frailProxy(t, server.url);
  const aborting = new AbortController();
  const reason = new Error('no longer');
  let isAborted = false;
  const tools = server.client({
    baseUrl: proxy.url,
    async sleep() {
      if (!isAborted) aborting.abort(reason); // between two tries: nothing is known of the first
      isAborted = true;
    },
  });
  const hands = await tools.session(server.environment.id);
  proxy.drop(APPEND);
  await t.rejects(hands.call('bash', {}, { signal: aborting.signal }), reason);
  await untilWithdrawn(server, hands);
  const [callId = '', ...others] = await server.untilCalled(hands);
  t.match(await server.eventsOf(hands, 'user.tool_confirmation'), [{ tool_use_id: callId }]);
  t.same(others, []);
});

t.test('aborted while the server cannot be reached, a call that was not stored never is', async (t) => {
  const server = await remoteServer(t);
  const proxy = await frailProxy(t, server.url);
  const aborting = new AbortController();
  const reason = new Error('no longer');
  const tools = server.client({
    baseUrl: proxy.url,
    async sleep() {
      proxy.block(undefined);
      aborting.abort(reason);
    },
  });
  const hands = await tools.session(server.environment.id);
  proxy.block(APPEND);
  await t.rejects(hands.call('bash', {}, { signal: aborting.signal }), reason);
  const appends = () => proxy.requests.filter((line) => APPEND.test(line)).length;
  await until('it has asked what became of it', () => appends() === 2);
  await hands.say('next');
  t.equal(appends(), 3);
  t.same(await server.eventsOf(hands, 'agent.tool_use'), []);
});

t.test('a call that is given up while its append is on the way is withdrawn when it has arrived', async (t) => {
  const server = await remoteServer(t);
  let release = () => {};
  const released = new Promise<void>((resolve) => {
    release = resolve;
  });
  const tools = server.client({
    async fetch(url, init) {
      const response = await fetch(url, init);
      if (String(url).endsWith('/events') && /tool_use"/.test(String(init?.body))) await released;
      return response;
    },
  });
  const hands = await tools.session(server.environment.id);
  const aborting = new AbortController();
  const call = hands.call('bash', {}, { signal: aborting.signal });
  await server.untilCalled(hands);
  aborting.abort();
  await t.rejects(call, { name: 'AbortError' }, 'at once');
  t.same(await server.eventsOf(hands, 'user.tool_confirmation'), []);
  release();
  await untilWithdrawn(server, hands);
});

t.test('a call that is answered is not withdrawn when it is aborted after', async (t) => {
  const server = await remoteServer(t);
  const hands = await server.client({ sleep }).session(server.environment.id);
  const aborting = new AbortController();
  const call = hands.call('bash', {}, { signal: aborting.signal, timeoutMs: 60_000 });
  const [callId = ''] = await server.untilCalled(hands);
  await server.answer(hands, callId);
  await call;
  aborting.abort();
  await hands.say('next');
  t.same(await server.eventsOf(hands, 'user.tool_confirmation'), []);
});
