import { sql } from 'kysely';
import t from 'tap';
import { poll } from '../../src/queue/poll.ts';
import { DEFAULT_SETTINGS } from '../../src/queue/settings.ts';
import { lapse, rowOf, testServer } from '../support/harness.ts';
import { hold, holding, replicas, type Stage } from '../support/interleave.ts';

const LOOK = { ...DEFAULT_SETTINGS, minQueuedAgeMs: 0 };

const REPLICAS = 8;
const POLLS_PER_REPLICA = 4;
const POLLS = REPLICAS * POLLS_PER_REPLICA;
const taker = { workerId: null, reclaimOlderThanMs: 60_000 };

for (const { items, what } of [
  { items: POLLS, what: 'as many polls as items on 8 replicas get each item once' },
  { items: 11, what: 'more polls than items on 8 replicas get each item once, and null' },
]) {
  t.test(what, async (t) => {
    const { database, queue, environment } = await testServer(t);
    const others = await replicas(t, database, REPLICAS);
    const ids: string[] = [];
    for (let n = 0; n < items; n++) {
      ids.push((await queue.enqueue({ environmentId: environment.id, sessionId: `session-${n}` })).item.id);
    }
    const polls = others.flatMap((replica) =>
      Array.from({ length: POLLS_PER_REPLICA }, () => replica.queue.poll({ environmentId: environment.id })),
    );
    const answers = await Promise.all(polls);
    const got = answers.flatMap((answer) => answer?.item.id ?? []);
    t.same(got.sort(), ids.sort());
    t.equal(answers.filter((answer) => answer === null).length, POLLS - items);
  });
}

t.test('single looks that arrive on 8 connections at once never share an item', async (t) => {
  const { database, queue, environment } = await testServer(t);
  const others = await replicas(t, database, REPLICAS);
  for (let round = 0; round < 10; round++) {
    for (let n = 0; n < REPLICAS; n++) {
      await queue.enqueue({ environmentId: environment.id, sessionId: `${round}-${n}` });
    }
    const answers = await Promise.all(others.map((replica) => poll(replica.database, environment.id, [taker], LOOK)));
    t.equal(new Set(answers.map(({ handOuts }) => handOuts[0]?.item.id)).size, REPLICAS, 'N items for N looks');
  }
});

t.test('a poll passes by an item that another poll is taking, and takes the next', async (t) => {
  const { database, environment, enqueue, call, work } = await testServer(t);
  const [first, second] = [await enqueue('first'), await enqueue('second')];
  const other = await hold(t, database, (held) => poll(held, environment.id, [taker], LOOK));
  t.equal(other.answer.handOuts[0]?.item.id, first);
  t.equal((await call('GET', work('/poll'))).json.id, second);
  await other.commit();
  t.equal((await call('GET', work('/poll'))).json, null);
});

t.test('an item whose hand-out was rolled back is offered again, with the same id', async (t) => {
  const { database, environment, enqueue, call, work } = await testServer(t);
  const id = await enqueue('session');
  const other = await hold(t, database, (held) => poll(held, environment.id, [taker], LOOK));
  await other.rollback();
  t.equal((await call('GET', work('/poll'))).json.id, id);
});

const LAPSED: readonly Stage[] = ['reserved', 'starting', 'active'];

for (const stage of LAPSED) {
  t.test(
    `a lapsed item (${stage}) that one poll is taking is not taken by another, nor after its commit`,
    async (t) => {
      const server = await testServer(t);
      const { database, environment, call, work } = server;
      const { id } = await holding(server, 'session', stage);
      await lapse(database, id);
      const winner = await hold(t, database, (held) => poll(held, environment.id, [taker], LOOK));
      const fresh = winner.answer.handOuts[0]?.item.id ?? '';
      t.not(fresh, id, 'a re-hand-out mints a new id');
      t.equal((await call('GET', work('/poll'))).json, null, 'while it is being taken');
      await winner.commit();
      const row = await rowOf(database, fresh);
      t.equal((await call('GET', work('/poll'))).json, null, 'once it is taken');
      t.same(await rowOf(database, fresh), row);
    },
  );

  t.test(`8 polls at once over one lapsed item (${stage}) have one winner`, async (t) => {
    const server = await testServer(t);
    const { database, environment } = server;
    const others = await replicas(t, database, REPLICAS);
    let { id } = await holding(server, 'session', stage);
    for (let round = 1; round <= 10; round++) {
      await lapse(database, id);
      const answers = await Promise.all(
        others.map(({ queue }) => queue.poll({ environmentId: environment.id, reclaimOlderThanMs: 60_000 })),
      );
      const won = answers.flatMap((answer) => answer?.item.id ?? []);
      t.equal(won.length, 1, `round ${round}`);
      const [superseded] = await database.rows(
        sql<{ n: number }>`select count(*)::integer as n from ${database.names.handOuts}`,
      );
      t.equal(superseded?.n, round, 'one id was superseded');
      id = won[0] ?? '';
    }
  });
}
