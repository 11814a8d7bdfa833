import t from 'tap';
import { RemoteTools, type SessionEvent } from '../../src/client/index.ts';
import { until } from '../support/harness.ts';

const ID = 'sesn_1';
const EVENTS = { 'content-type': 'text/event-stream' };
const encoder = new TextEncoder();

type Stream = { readonly signal: AbortSignal; readonly out: ReadableStreamDefaultController<Uint8Array> };
type Fate = { stream?(n: number): Response | undefined; list(n: number): readonly SessionEvent[] | number };

/** A session whose streams and lists are the test's: what a real server and its network do by bad luck only. */
async function scripted({ stream = () => undefined, list }: Fate, silenceMsMax = 60_000) {
  const streams: Stream[] = [];
  const lists: string[] = [];
  const tools = new RemoteTools({
    baseUrl: 'http://127.0.0.1:9',
    apiKey: 'unused',
    silenceMsMax,
    sleep: async () => {},
    async fetch(asked, { signal } = {}) {
      const url = new URL(String(asked));
      if (url.pathname.endsWith('/events')) {
        const found = list(lists.push(url.searchParams.get('created_at[gte]') ?? ''));
        return typeof found === 'number'
          ? new Response('', { status: found })
          : Response.json({ data: found, next_page: null });
      }
      if (!url.pathname.endsWith('/stream')) return Response.json({ id: ID, updated_at: '' });
      let out: Stream['out'] | undefined;
      const body = new ReadableStream<Uint8Array>({
        start(controller) {
          out = controller;
          signal?.addEventListener('abort', () => controller.error(signal.reason));
        },
      });
      if (out !== undefined && signal) streams.push({ signal, out });
      return stream(streams.length) ?? new Response(body, { headers: EVENTS });
    },
  });
  const hands = await tools.attach(ID);
  return { hands, streams, lists };
}

const event = (n: number, text = ''): SessionEvent => ({
  id: `sevt_${n}`,
  type: 'agent.message',
  content: [{ type: 'text', text }],
  processed_at: `2026-01-01T00:00:00.${String(n).padStart(6, '0')}Z`,
});
const send = (stream: Stream | undefined, data: unknown, type = 'agent.message') =>
  stream?.out.enqueue(encoder.encode(`event: ${type}\ndata: ${JSON.stringify(data)}\n\n`));
const idsOf = (events: readonly SessionEvent[]) => events.map(({ id }) => id);

/** Reads so many, then leaves. */
async function read(events: AsyncGenerator<SessionEvent>, count: number): Promise<SessionEvent[]> {
  const seen: SessionEvent[] = [];
  for await (const event of events) if (seen.push(event) === count) break;
  return seen;
}

t.test('what comes while the list before it fails waits until that is read: nothing is passed over', async (t) => {
  const session = await scripted({
    list(n) {
      if (n === 1 || n === 3) send(session.streams.at(-1), event(n + 1));
      if (n === 1 || n === 3) return 500;
      return n === 2 ? [event(1), event(2)] : [event(2), event(3), event(4)];
    },
  });
  const reading = read(session.hands.events(), 5);
  await until('it has attached anew', () => session.lists.length === 2);
  session.streams[1]?.out.close();
  await until('and once more, twice', () => session.lists.length === 4);
  send(session.streams.at(-1), event(5));
  t.same(idsOf(await reading), ['sevt_1', 'sevt_2', 'sevt_3', 'sevt_4', 'sevt_5']);
});

t.test('whoever reads slowly is told to list, and misses nothing', async (t) => {
  const text = 'x'.repeat(2 ** 20);
  const all = Array.from({ length: 21 }, (_, n) => event(n + 1, text));
  const session = await scripted({ list: (n) => (n <= 2 ? all.slice(0, 1) : all) });
  const slow = session.hands.events();
  t.equal((await slow.next()).value?.id, 'sevt_1');
  const quick = read(session.hands.events(), 21);
  await until('both are attached', () => session.lists.length === 2);
  for (const event of all.slice(1)) send(session.streams[0], event);
  t.same(idsOf(await quick), idsOf(all), 'all has come');
  t.equal(session.lists.length, 2);
  t.same(idsOf(await read(slow, 20)), idsOf(all.slice(1)));
  t.same(session.lists.slice(2), [event(1).processed_at], 'from where it was');
  t.equal(session.streams.length, 1);
});

t.test('a stream that says something now and then is kept', async (t) => {
  const session = await scripted({ list: () => [] }, 200);
  const reading = read(session.hands.events(), 1);
  let pings = 0;
  const pinging = setInterval(() => {
    send(session.streams[0], { type: 'ping' }, 'ping');
    if (++pings === 10) send(session.streams[0], event(1));
  }, 40);
  t.teardown(() => clearInterval(pinging));
  t.same(idsOf(await reading), ['sevt_1']);
  t.equal(session.streams.length, 1);
});

t.test('an answer that is no stream of events is left, and asked for again', async (t) => {
  const session = await scripted({
    list: () => [],
    stream: (n) => (n === 1 ? new Response('<html>', { headers: { 'content-type': 'text/html' } }) : undefined),
  });
  const reading = read(session.hands.events(), 1);
  await until('it has asked again', () => session.streams.length === 2);
  t.equal(session.streams[0]?.signal.aborted, true, 'nothing is left open');
  session.streams[1]?.out.enqueue(encoder.encode('event: odd\ndata: not JSON\n\n'));
  await until('and again', () => session.streams.length === 3);
  t.equal(session.streams[1]?.signal.aborted, true);
  send(session.streams[2], event(1));
  t.same(idsOf(await reading), ['sevt_1']);
});
