import t from 'tap';
import type { SessionEvent } from '../../src/client/index.ts';
import { frailProxy } from '../support/frail-proxy.ts';
import { OPERATOR_KEY, until } from '../support/harness.ts';
import { remoteServer } from '../support/remote.ts';

const STREAM = /^GET \/v1\/sessions\/[^/]+\/events\/stream$/;

/** Notes what comes, until it ends. */
function noted(events: AsyncIterable<SessionEvent>) {
  const seen: SessionEvent[] = [];
  const ended = (async () => {
    for await (const event of events) seen.push(event);
  })();
  return { seen, ended, said: () => seen.flatMap((event) => (event.type === 'agent.message' ? textOf(event) : [])) };
}

const textOf = ({ content }: Extract<SessionEvent, { type: 'agent.message' }>) =>
  content.map(({ text }) => String(text));

t.test('from the beginning: what was, then what comes, in order, each once, to the end of the session', async (t) => {
  const { tools, environment, eventsOf } = await remoteServer(t);
  const hands = await tools.session(environment.id);
  for (const text of ['1', '2']) await hands.say(text);
  const { seen, ended, said } = noted(hands.events());
  await until('what was', () => said().length === 2);
  await Promise.all(['3', '4', '5'].map((text) => hands.say(text)));
  await hands.close();
  await ended;
  t.strictSame(seen, await eventsOf(hands), 'as they are stored');
  t.equal(seen.at(-1)?.type, 'session.status_terminated');
  const again = noted(hands.events());
  await again.ended;
  t.strictSame(again.seen, seen, 'a session that has ended tells all of it, and ends');
});

t.test('from now: nothing that was before, also of one append', async (t) => {
  const { tools, environment } = await remoteServer(t);
  const made = await tools.session(environment.id);
  const message = (text: string) => ({ type: 'agent.message', content: [{ type: 'text', text }] }) as const;
  await made.send(Array.from({ length: 5 }, (_, n) => message(`before ${n}`)));
  const hands = await tools.attach(made.id);
  const { ended, said } = noted(hands.events({ from: 'now' }));
  for (let n = 0; said().length === 0; n++) await hands.say(`now ${n}`);
  await hands.close();
  await ended;
  t.ok(said().every((text) => text.startsWith('now')));

  const over = noted(hands.events({ from: 'now' }));
  await over.ended;
  t.same(over.seen, [], 'a session that has ended has nothing more to tell');
});

t.test('over many cuts, more events than a page holds come each once and in order', async (t) => {
  const server = await remoteServer(t);
  const proxy = await frailProxy(t, server.url);
  const hands = await server.client({ baseUrl: proxy.url, sleep: async () => {} }).session(server.environment.id);
  const writer = await server.tools.attach(hands.id);
  const streams = () => proxy.requests.filter((line) => STREAM.test(line)).length;
  const { seen, ended, said } = noted(hands.events());
  const expected: string[] = [];
  for (let batch = 0; batch < 30; batch++) {
    const texts = Array.from({ length: 50 }, (_, n) => `${batch} ${n}`);
    expected.push(...texts);
    const content = (text: string) => [{ type: 'text', text }];
    await writer.send(texts.map((text) => ({ type: 'agent.message', content: content(text) })));
    const before = streams();
    if (batch % 3 === 0) {
      proxy.cut();
      await until('it is back', () => streams() > before);
    }
  }
  await writer.close();
  await ended;
  t.strictSame(said(), expected);
  t.equal(new Set(seen.map(({ id }) => id)).size, seen.length);
});

t.test('a signal ends it with its reason; whoever stops reading leaves nothing open', async (t) => {
  const server = await remoteServer(t);
  const signals: AbortSignal[] = [];
  const tools = server.client({
    fetch(url, init) {
      if (String(url).endsWith('/stream') && init?.signal) signals.push(init.signal);
      return fetch(url, init);
    },
  });
  const hands = await tools.session(server.environment.id);
  await hands.say('hello');
  for await (const event of hands.events()) if (event.type === 'agent.message') break;
  t.equal(signals.at(-1)?.aborted, true);

  const aborting = new AbortController();
  const reason = new Error('enough');
  const { seen, ended } = noted(hands.events({ signal: aborting.signal }));
  await until('it reads', () => seen.length > 0);
  t.equal(signals.at(-1)?.aborted, false);
  aborting.abort(reason);
  await t.rejects(ended, reason);
  t.equal(signals.at(-1)?.aborted, true);
  await t.rejects(noted(hands.events({ signal: AbortSignal.abort(reason) })).ended, reason);
});

t.test('of a session that is deleted the last event says so', async (t) => {
  const server = await remoteServer(t);
  const hands = await server.tools.session(server.environment.id);
  await hands.say('hello');
  const { seen, ended } = noted(hands.events());
  await until('it reads', () => seen.length > 0);
  await server.call('DELETE', `/v1/sessions/${hands.id}`, { as: OPERATOR_KEY });
  await ended;
  t.equal(seen.at(-1)?.type, 'session.deleted');
});
