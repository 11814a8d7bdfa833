import t from 'tap';
import { createQueue } from '../src/create-queue.ts';
import { killBackends, STATEMENTS, watch, watchPromise } from './support/gates.ts';
import { testClient, testDatabase, testServer, until } from './support/harness.ts';
import { replicas } from './support/interleave.ts';
import { BLOCK_MS, gotIt, waitingServer } from './support/waiting.ts';

const TRIES_MAX = 5;

t.test('an enqueue on another replica ends the wait', async (t) => {
  const { wait, environment, plain } = await waitingServer(t, { background: true });
  const [other] = await replicas(t, plain, 1);
  const { ended } = await wait();
  const enqueued = await other?.queue.enqueue({ environmentId: environment.id, sessionId: 'session' });
  gotIt(t, await ended, enqueued?.item.id ?? '');
});

t.test('an enqueue on another replica that commits while the poll is being looked for ends the wait', async (t) => {
  const { poll, looks, environment, plain } = await waitingServer(t, { background: true });
  const [other] = await replicas(t, plain, 1);
  looks.close();
  const ended = poll(BLOCK_MS);
  await until('the look found nothing', () => looks.ended() === 1);
  const enqueued = await other?.queue.enqueue({ environmentId: environment.id, sessionId: 'session' });
  looks.open();
  gotIt(t, await ended, enqueued?.item.id ?? '');
});

t.test('an item that another replica put back ends the wait', async (t) => {
  const { wait, environment, plain, enqueue } = await waitingServer(t, { background: true });
  const [other] = await replicas(t, plain, 1);
  const id = await enqueue('session');
  const handOut = await other?.queue.poll({ environmentId: environment.id });
  const { ended } = await wait();
  if (handOut) await other?.queue.putBack(handOut, true);
  gotIt(t, await ended, id);
});

t.test('an item taken on another replica for a client that went away ends the wait', async (t) => {
  const { wait, environment, plain, enqueue } = await waitingServer(t, { background: true });
  const [other] = await replicas(t, plain, 1);
  if (other === undefined) throw new Error('no replica');
  const looks = watch(other.database, STATEMENTS.look);
  const queue = createQueue({ database: looks.database });
  t.teardown(() => queue.close());
  const client = new AbortController();
  const id = await enqueue('session');
  looks.close();
  const taken = queue.poll({ environmentId: environment.id, signal: client.signal });
  await until('the item is taken', () => looks.ended() === 1);
  const { ended } = await wait();
  client.abort();
  looks.open();
  t.equal(await taken, null);
  gotIt(t, await ended, id);
});

t.test('an enqueue in a transaction of the caller ends the wait with its commit, and not before', async (t) => {
  const { poll, wait, queue, environment, looks } = await waitingServer(t, { background: true });
  const client = await testClient(t);
  const environmentId = environment.id;
  for (let tries = 1; ; tries++) {
    const { ended } = await wait();
    const seen = watchPromise(ended);
    const looked = looks.ended();
    await client.query('begin');
    const { item } = await queue.enqueue({ environmentId, sessionId: `session-${tries}` }, client);
    t.equal((await poll()).answer.text, 'null', 'what is not committed is not handed out');
    t.equal(looks.ended() - looked, 1, 'and wakes nobody');
    const isWaiting = !seen.settled;
    await client.query('commit');
    const timed = await ended;
    if (timed.answer.json === null && timed.ms >= BLOCK_MS && tries < TRIES_MAX) {
      // Its time was up before the commit: the machine stood still.
      await queue.stop([{ environmentId, id: item.id, force: true, reason: 'operator' }]);
      continue;
    }
    t.ok(isWaiting);
    return gotIt(t, timed, item.id);
  }
});

t.test('a transaction of the caller on another replica ends the wait with its commit', async (t) => {
  const { wait, environment, plain } = await waitingServer(t, { background: true });
  const [other] = await replicas(t, plain, 1);
  const { ended } = await wait();
  const enqueued = await other?.database.kysely
    .transaction()
    .execute((transaction) =>
      other.queue.enqueue({ environmentId: environment.id, sessionId: 'session' }, transaction),
    );
  gotIt(t, await ended, enqueued?.item.id ?? '');
});

t.test('an enqueue in one schema wakes nobody in another', async (t) => {
  const heard: string[] = [];
  const [ours, theirs] = [await testDatabase(t), await testServer(t)];
  const listener = ours.listen({ onNotification: (payload) => heard.push(payload), onListening: () => {} });
  t.teardown(() => listener.close());
  await until('listening', () => listener.isListening());
  await theirs.enqueue('session');
  await createNotification(ours.channel, 'the last');
  await until('the last notification', () => heard.includes('the last'));
  t.same(heard, ['the last']);

  async function createNotification(channel: string, payload: string): Promise<void> {
    const client = await testClient(t);
    await client.query('select pg_notify($1, $2)', [channel, payload]);
  }
});

t.test('a killed LISTEN connection comes back, each time, and hears again', async (t) => {
  const database = await testDatabase(t);
  const client = await testClient(t);
  const heard: string[] = [];
  let started = 0;
  const listener = database.listen({ onNotification: (payload) => heard.push(payload), onListening: () => started++ });
  t.teardown(() => listener.close());
  for (let round = 1; round <= 3; round++) {
    await until(`start ${round}`, () => started === round);
    t.ok(listener.isListening());
    await client.query('select pg_notify($1, $2)', [database.channel, `${round}`]);
    await until(`notification ${round}`, () => heard.length === round);
    t.equal(await killBackends(database, `listen%${database.channel}%`), 1);
    await until('it is noticed', () => started > round || !listener.isListening());
  }
  t.same(heard, ['1', '2', '3']);
});

t.test('what was enqueued while nobody listened is found as soon as somebody does', async (t) => {
  const { wait, environment, plain, queue } = await waitingServer(t, { background: true });
  const [other] = await replicas(t, plain, 1);
  const { ended } = await wait();
  t.equal(await killBackends(plain, `listen%${plain.channel}%`), 1);
  await until('it is noticed', () => !queue.isListening());
  const enqueued = await other?.queue.enqueue({ environmentId: environment.id, sessionId: 'session' });
  gotIt(t, await ended, enqueued?.item.id ?? '');
});
