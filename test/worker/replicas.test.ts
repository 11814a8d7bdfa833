import t, { type Test } from 'tap';
import { OPERATOR_KEY, type Server, testDatabase, testServer, until } from '../support/harness.ts';
import { type EventStream, openStream } from '../support/event-stream.ts';
import { turn } from '../support/gates.ts';
import type { Event } from '../support/agent-side.ts';

const SEED = Number(process.env.TEST_SEED ?? Math.floor(Math.random() * 2 ** 31));

/** Numbers from a seed (mulberry32), so that a run that failed can be had again. */
function random(seed: number) {
  let state = seed;
  const next = () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
  const upTo = (max: number) => Math.floor(next() * (max + 1));
  return {
    upTo,
    of: <T>(all: readonly [T, ...T[]]): T => all[upTo(all.length - 1)] ?? all[0],
    is: (p: number) => next() < p,
  };
}

/** Two servers on one database. */
async function twoReplicas(t: Test, isListening: readonly [boolean, boolean]): Promise<[Server, Server]> {
  const database = await testDatabase(t);
  const other = await testDatabase(t, 'postgres', { schema: database.schema });
  const one = await testServer(t, { database, background: isListening[0] });
  const two = await testServer(t, { database: other, background: isListening[1] });
  await until('both to listen', () => [one, two].every(({ queue }, n) => queue.isListening() === isListening[n]));
  return [one, two];
}

async function listAll({ call }: Server, id: string, limit: number): Promise<Event[]> {
  const found: Event[] = [];
  for (let page: string | null = ''; page !== null; ) {
    const query = `limit=${limit}${page === '' ? '' : `&page=${encodeURIComponent(page)}`}`;
    const { status, json } = await call('GET', `/v1/sessions/${id}/events?${query}`, { as: OPERATOR_KEY });
    if (status !== 200) throw new Error(`a list was answered ${status}`);
    found.push(...json.data);
    page = json.next_page;
  }
  return found;
}

const isOrdered = (ids: readonly string[], all: readonly string[]) => {
  const places = ids.map((id) => all.indexOf(id));
  return places.every((place, n) => place >= 0 && (n === 0 || place > (places[n - 1] ?? -1)));
};

/** One interleaving: readers attach and then list, as the official runner does; appenders append; each where chance says. */
async function interleave(t: Test, servers: [Server, Server], seed: number): Promise<void> {
  const { upTo, of, is } = random(seed);
  const created = { environment_id: servers[0].environment.id };
  const { json } = await servers[0].call('POST', '/v1/sessions', { as: OPERATOR_KEY, body: created });
  const id: string = json.id;
  const turns = async (max: number) => {
    for (let left = upTo(max); left > 0; left--) await turn();
  };
  const streams: EventStream[] = [];
  const readers: { known: Set<string>; streams: EventStream[] }[] = [];

  const append = async (): Promise<void> => {
    for (let left = 1 + upTo(4); left > 0; left--) {
      await turns(30);
      const text = { type: 'text', text: 'x'.repeat(upTo(2_000)) };
      const events = Array.from({ length: 1 + upTo(3) }, () => ({ type: 'user.message', content: [text] }));
      const { status } = await of(servers).call('POST', `/v1/sessions/${id}/events`, {
        as: OPERATOR_KEY,
        body: { events },
      });
      if (status !== 200) throw new Error(`an append was answered ${status}`);
    }
  };
  const read = async (): Promise<void> => {
    const reader = { known: new Set<string>(), streams: [] as EventStream[] };
    readers.push(reader);
    for (let attachments = is(0.3) ? 2 : 1; attachments > 0; attachments--) {
      await turns(60);
      reader.streams.at(-1)?.leave();
      const { url } = of(servers);
      const stream = await openStream(t, url, id);
      reader.streams.push(stream);
      streams.push(stream);
      await turns(10);
      const listed = await listAll(of(servers), id, 1 + upTo(9));
      for (const event of listed) reader.known.add(event.id);
    }
  };
  const actors = [append, append, read, read, ...(is(0.5) ? [append] : []), ...(is(0.5) ? [read] : [])];
  await Promise.all(actors.toSorted(() => upTo(2) - 1).map((act) => act()));

  const all = (await listAll(servers[0], id, 1_000)).map((event) => event.id);
  const missing = ({ known, streams }: (typeof readers)[number]) => {
    const seen = new Set([...known, ...streams.flatMap((stream) => stream.events().map((event) => event.id))]);
    return all.filter((event) => !seen.has(event));
  };
  await until('every reader to have every event', () => readers.every((reader) => missing(reader).length === 0)).catch(
    () => t.fail('events were lost', { seed, lost: readers.map(missing), all }),
  );
  for (const stream of streams) {
    const ids = stream.events().map((event) => event.id);
    if (!isOrdered(ids, all)) t.fail('a stream has another order than the list, or an event twice', { seed, ids, all });
    stream.leave();
  }
}

async function manyInterleavings(t: Test, servers: [Server, Server], count: number, atOnce: number): Promise<void> {
  const seeds = Array.from({ length: count }, (_, n) => SEED + n).values();
  const lane = async () => {
    for (const seed of seeds) if (t.passing()) await interleave(t, servers, seed);
  };
  await Promise.all(Array.from({ length: atOnce }, lane));
  t.comment(`seeds ${SEED} to ${SEED + count - 1}`);
  t.ok(t.passing(), `${count} interleavings from seed ${SEED}`);
  for (const { app } of servers) await until('all who left are forgotten', () => app.openStreams() === 0);
}

t.test('no event is lost over 200 interleavings of attach, list and append on two replicas', async (t) => {
  await manyInterleavings(t, await twoReplicas(t, [true, true]), 200, 4);
});

t.test('nor where one of them hears nothing of the other', async (t) => {
  await manyInterleavings(t, await twoReplicas(t, [true, false]), 24, 12);
});
