import t from 'tap';
import { ControlError, RemoteToolError, RemoteTools } from '../../src/client/index.ts';
import { OPERATOR_KEY } from '../support/harness.ts';
import { remoteServer } from '../support/remote.ts';

t.test('a call comes back with what the worker posted, in blocks and as text', async (t) => {
  const { tools, environment, eventsOf, untilCalled, answer } = await remoteServer(t);
  const hands = await tools.session(environment.id, { title: 'a title', metadata: { team: 'tools' } });
  const call = hands.call('bash', { command: 'ls' });
  const [callId = ''] = await untilCalled(hands);
  t.match(await eventsOf(hands, 'agent.tool_use'), [{ name: 'bash', input: { command: 'ls' } }]);
  const content = [
    { type: 'text', text: 'one' },
    { type: 'image', source: { type: 'base64' } },
    { type: 'text', text: 'two' },
  ];
  await answer(hands, callId, { content });
  t.strictSame(await call, { callId, content, text: 'one\ntwo', isError: false });
});

t.test('a tool that failed is an outcome; so is a result without content', async (t) => {
  const { tools, environment, untilCalled, answer } = await remoteServer(t);
  const hands = await tools.session(environment.id);
  const calls = [hands.call('bash'), hands.call('bash', {})];
  const [failed = '', empty = ''] = await untilCalled(hands, 2);
  await answer(hands, failed, { content: [{ type: 'text', text: 'exit 1' }], is_error: true });
  await answer(hands, empty, {});
  const outcomes = await Promise.all(calls);
  t.match(
    outcomes.toSorted((a, b) => a.text.length - b.text.length),
    [
      { text: '', content: [], isError: false },
      { text: 'exit 1', isError: true },
    ],
  );
});

t.test('calls in parallel are answered each for itself, in whatever order, over one stream', async (t) => {
  const server = await remoteServer(t);
  const sent: string[] = [];
  const tools = server.client({
    fetch(url, init) {
      sent.push(new URL(String(url)).pathname.split('/').at(-1) ?? '');
      return fetch(url, init);
    },
  });
  const hands = await tools.session(server.environment.id);
  const asked = Array.from({ length: 50 }, (_, n) => n);
  const calls = asked.map(async (n) => (await hands.call('bash', { n })).text);
  await server.untilCalled(hands, asked.length);
  const stored = (await server.eventsOf(hands, 'agent.tool_use')) as unknown as { id: string; input: { n: number } }[];
  for (const { id, input } of stored.toReversed()) await server.answer(hands, id, `answer ${input.n}`);
  t.same(
    await Promise.all(calls),
    asked.map((n) => `answer ${n}`),
  );
  t.equal(sent.filter((path) => path === 'stream').length, 1);
});

t.test('nobody waits, nothing is open: a session between two calls has no stream', async (t) => {
  const server = await remoteServer(t);
  const signals: AbortSignal[] = [];
  const tools = server.client({
    fetch(url, init) {
      if (String(url).endsWith('/stream') && init?.signal) signals.push(init.signal);
      return fetch(url, init);
    },
  });
  const hands = await tools.session(server.environment.id);
  for (const n of [1, 2]) {
    const call = hands.call('bash', { n });
    const callId = (await server.untilCalled(hands, n)).at(-1) ?? '';
    await server.answer(hands, callId, `${n}`);
    t.equal((await call).text, `${n}`);
    t.same(
      signals.map(({ aborted }) => aborted),
      Array.from({ length: n }, () => true),
    );
  }
});

t.test('two hands on one session hear their own answers', async (t) => {
  const { tools, environment, untilCalled, answer } = await remoteServer(t);
  const one = await tools.session(environment.id);
  const first = one.call('bash', { n: 1 });
  const [firstId = ''] = await untilCalled(one);
  const other = await tools.attach(one.id);
  t.equal(other.id, one.id);
  const second = other.call('bash', { n: 2 });
  const [, secondId = ''] = await untilCalled(one, 2);
  await answer(one, secondId, 'second');
  t.equal((await second).text, 'second');
  await answer(one, firstId, 'first');
  t.equal((await first).text, 'first');
});

t.test('a call that is to be asked about runs when it is allowed, and is rejected when it is denied', async (t) => {
  const { tools, environment, untilCalled, answer } = await remoteServer(t);
  const hands = await tools.session(environment.id);
  const confirm = (tool_use_id: string, result: 'allow' | 'deny', deny_message?: string) =>
    hands.send([{ type: 'user.tool_confirmation', tool_use_id, result, ...(deny_message ? { deny_message } : {}) }]);
  const allowed = hands.call('bash', {}, { evaluatedPermission: 'ask' });
  const [allowedId = ''] = await untilCalled(hands);
  t.equal(await answer(hands, allowedId), 400, 'held');
  await confirm(allowedId, 'allow');
  t.equal(await answer(hands, allowedId), 200);
  t.equal((await allowed).text, 'done');

  const refused = hands.call('bash', {}, { evaluatedPermission: 'ask' });
  const [, refusedId = ''] = await untilCalled(hands, 2);
  await confirm(refusedId, 'deny', 'not on a Friday');
  await t.rejects(refused, { name: 'RemoteToolError', code: 'denied', message: /not on a Friday/ });
  await t.rejects(
    hands.call('bash', {}, { evaluatedPermission: 'deny' }),
    new RemoteToolError('denied', 'the call was denied: it was not permitted'),
  );
});

t.test('an unknown environment, session or key is the error of the control client', async (t) => {
  const { tools, environment, client } = await remoteServer(t);
  const refusals = [
    [() => tools.session('env_unknown'), 404],
    [() => tools.attach('sesn_unknown'), 404],
    [() => client({ apiKey: 'not a key of anybody' }).session(environment.id), 401],
    [() => tools.session(environment.id, { title: '' }), 400],
    [() => tools.session(environment.id).then((hands) => hands.call('x'.repeat(200))), 400],
    [() => tools.session(environment.id).then((hands) => hands.send([])), 400],
  ] as const;
  for (const [refuse, status] of refusals) {
    const error = await refuse().catch((error: unknown) => error);
    t.ok(error instanceof ControlError);
    t.match(error, { status, requestId: /^req_/ });
  }
});

t.test('a server that is not there is told after some tries, not waited for', async (t) => {
  const { environment, client } = await remoteServer(t);
  const slept: number[] = [];
  const sleep = async (ms: number) => void slept.push(ms);
  const nowhere = client({ baseUrl: 'http://127.0.0.1:9', sleep });
  await t.rejects(nowhere.session(environment.id), { name: 'ControlError', type: 'connection_error' });

  const hands = await client({
    sleep,
    fetch: (url, init) =>
      /stream/.test(String(url)) ? Promise.reject(new TypeError('fetch failed')) : fetch(url, init),
  }).session(environment.id);
  slept.length = 0;
  await t.rejects(hands.call('bash'), { name: 'ControlError', type: 'connection_error' });
  t.equal(slept.length, 8);
});

t.test('what is no input is refused by name, before anything is sent', async (t) => {
  const { tools, environment, eventsOf } = await remoteServer(t);
  const hands = await tools.session(environment.id);
  const wrong = (run: () => unknown, message: RegExp) => t.rejects(async () => run(), { name: 'TypeError', message });
  const untyped = hands as unknown as Record<string, (...given: unknown[]) => unknown>;
  await wrong(() => new RemoteTools({ baseUrl: '', apiKey: OPERATOR_KEY }), /baseUrl/);
  await wrong(() => tools.session(''), /environmentId/);
  await wrong(() => tools.attach(''), /sessionId/);
  await wrong(() => hands.call(''), /name/);
  for (const input of [null, [], 'ls']) await wrong(() => untyped.call?.('bash', input), /input/);
  for (const timeoutMs of [0, -1, Number.NaN, 2 ** 31, '5']) {
    await wrong(() => untyped.call?.('bash', {}, { timeoutMs }), /timeoutMs/);
  }
  await wrong(() => untyped.call?.('bash', {}, { evaluatedPermission: 'maybe' }), /evaluatedPermission/);
  await wrong(() => untyped.say?.(5), /text/);
  await wrong(() => untyped.say?.('hello', { as: 'worker' }), /as must be/);
  await wrong(() => untyped.send?.('hello'), /events/);
  await wrong(() => untyped.events?.({ from: 'yesterday' }), /from/);
  t.same(await eventsOf(hands), []);
});

t.test('what the agent and the user say is appended', async (t) => {
  const { tools, environment, eventsOf } = await remoteServer(t);
  const hands = await tools.session(environment.id);
  await hands.say('hello');
  await hands.say('do it', { as: 'user' });
  const [stored] = await hands.send([{ type: 'user.interrupt' }]);
  t.match(stored, { type: 'user.interrupt', id: /^sevt_/ });
  const events = await eventsOf(hands);
  const said = events.filter(({ type }) => !type.startsWith('session.'));
  t.match(said, [
    { type: 'agent.message', content: [{ type: 'text', text: 'hello' }] },
    { type: 'user.message', content: [{ type: 'text', text: 'do it' }] },
    { id: stored?.id },
  ]);
});
