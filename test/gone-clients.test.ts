import t, { type Test } from 'tap';
import { countGone } from './support/gates.ts';
import { ENGINES, rowOf, testClient, testDatabase, until } from './support/harness.ts';
import { gotIt, waitingServer } from './support/waiting.ts';

/** A poll whose client can go away. */
function leavingPoll({ call, work }: Pick<Awaited<ReturnType<typeof waitingServer>>, 'call' | 'work'>, query: string) {
  const client = new AbortController();
  const ended = call('GET', work(`/poll${query}`), { signal: client.signal });
  ended.catch(() => {}); // it fails for whoever went away
  return { leave: () => client.abort() };
}

/** The item was given to nobody before: its id and count are those of the first hand-out. */
async function firstHandOut(t: Test, { plain }: Awaited<ReturnType<typeof waitingServer>>, id: string): Promise<void> {
  t.match(await rowOf(plain, id), { id, hand_out_count: 1, state: 'queued' });
}

for (const engine of ENGINES) {
  t.test(engine, async (t) => {
    const plain = await testDatabase(t, engine);

    t.test(`clients that go away while they wait cost an item nothing: the next in line gets it`, async (t) => {
      const server = await waitingServer(t, { plain });
      const { looks, wait, enqueue } = server;
      const gone = countGone(server);
      const leaving = [];
      for (let n = 1; n <= 3; n++) {
        leaving.push(leavingPoll(server, '?block_ms=999'));
        await until('it waits', () => looks.ended() === n);
      }
      const { ended } = await wait();
      for (const poll of leaving) poll.leave();
      await until('they are gone', () => gone() === 3);
      const id = await enqueue('session');
      gotIt(t, await ended, id);
      await firstHandOut(t, server, id);
    });

    for (const query of ['', '?block_ms=999']) {
      t.test(`an item taken for clients that went away (${query}) goes to the next one, its id kept`, async (t) => {
        const server = await waitingServer(t, { plain });
        const { looks, poll, enqueue } = server;
        const gone = countGone(server);
        const ids = [await enqueue('one'), await enqueue('two')];
        looks.close();
        const first = leavingPoll(server, query);
        await until('the first look took an item', () => looks.ended() === 1);
        t.match(await rowOf(plain, ids[0] ?? ''), { hand_out_count: 1 });
        const second = leavingPoll(server, query);
        first.leave();
        await until('the first is gone', () => gone() === 1);
        looks.open();
        looks.close();
        await until('the second look took an item', () => looks.ended() >= 2);
        second.leave();
        await until('the second is gone', () => gone() === 2);
        looks.open();
        const got = [(await poll(999)).answer.json, (await poll(999)).answer.json];
        t.same(got.map((item) => item?.id).sort(), ids.sort());
        for (const id of ids) await firstHandOut(t, server, id);
      });
    }

    t.test(`an item taken for a client that went away is put back also when nobody waits`, async (t) => {
      const server = await waitingServer(t, { plain });
      const { looks, enqueue, queue, environment, poll } = server;
      const gone = countGone(server);
      const id = await enqueue('session');
      looks.close();
      const leaving = leavingPoll(server, '');
      await until('the look took the item', () => looks.ended() === 1);
      leaving.leave();
      await until('the client is gone', () => gone() === 1);
      looks.open();
      await until('it is put back', async () => (await queue.stats(environment.id)).depth === 1);
      t.match(await rowOf(plain, id), { id, hand_out_count: 0, lease_expires_at: null, worker_id: null });
      t.equal((await poll()).answer.json.id, id);
      await firstHandOut(t, server, id);
    });
  });
}

t.test('a client that went away before its credential was checked takes no item', async (t) => {
  const server = await waitingServer(t);
  const { plain, enqueue, poll } = server;
  const gone = countGone(server);
  const id = await enqueue('session');
  const client = await testClient(t);
  await client.query('begin');
  await client.query(`lock table ${plain.schema}.credentials in access exclusive mode`);
  const leaving = leavingPoll(server, '');
  const observer = await testClient(t);
  await until('the credential is being looked up', async () => {
    const { rows } = await observer.query(
      `select from pg_locks l where not l.granted and l.relation = '${plain.schema}.credentials'::regclass`,
    );
    return rows.length > 0;
  });
  leaving.leave();
  await until('the client is gone', () => gone() === 1);
  await client.query('commit');
  const { answer } = await poll();
  t.equal(answer.json?.id, id);
  await firstHandOut(t, server, id);
});
