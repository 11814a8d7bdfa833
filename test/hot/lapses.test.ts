import { sql } from 'kysely';
import t, { type Test } from 'tap';
import { createEnvironment } from '../../src/control/environments.ts';
import { createQueue } from '../../src/create-queue.ts';
import type { Database } from '../../src/db/connect.ts';
import { poll } from '../../src/queue/poll.ts';
import { DEFAULT_SETTINGS } from '../../src/queue/settings.ts';
import { lapse, testDatabase } from '../support/harness.ts';
import { holdRow } from '../support/interleave.ts';

/** An acked item, its startup lease of 120 s live. */
async function acked(t: Test) {
  const database = await testDatabase(t);
  const queue = createQueue({ database });
  t.teardown(() => queue.close());
  const { id: environmentId } = await createEnvironment(database, { name: 'lapses', type: 'self_hosted' });
  await queue.enqueue({ environmentId, sessionId: 'session' });
  const id = (await queue.poll({ environmentId }))?.item.id ?? '';
  await queue.ack([{ environmentId, id }]);
  return { database, environmentId, id };
}

const look = (database: Database, environmentId: string, isDeep = true, minQueuedAgeMs = 0) => {
  const taker = { workerId: null, reclaimOlderThanMs: null };
  return poll(database, environmentId, [taker], { ...DEFAULT_SETTINGS, isDeep, minQueuedAgeMs });
};

t.test('a deep look tells when the first of what is held can be taken', async (t) => {
  const { database, environmentId, id } = await acked(t);
  const { lapsesInMs } = await look(database, environmentId);
  t.ok(lapsesInMs !== null && lapsesInMs > 110_000 && lapsesInMs <= 120_000, `${lapsesInMs} ms`);
  t.equal((await look(database, environmentId, false)).lapsesInMs, null, 'one that is not deep tells nothing');
  const { id: elsewhere } = await createEnvironment(database, { name: 'elsewhere', type: 'self_hosted' });
  t.equal((await look(database, elsewhere)).lapsesInMs, null, 'nor does one at another environment');
  const aged = (await look(database, environmentId, true, 600_000)).lapsesInMs;
  t.ok(aged !== null && aged > 590_000, `${aged} ms for who may take it at an age of ten minutes`);
  await lapse(database, id);
  t.equal((await look(database, environmentId, false)).handOuts[0], null, 'nor does it find what has lapsed');
  const { handOuts } = await look(database, environmentId);
  t.equal(handOuts[0]?.item.sessionId, 'session');
  t.equal((await look(database, environmentId)).lapsesInMs, null, 'a reservation is not held');
});

t.test('what could be taken and was not is told as lapsed: the next look is to be deep', async (t) => {
  await t.test('somebody holds its row', async (t) => {
    const { database, environmentId, id } = await acked(t);
    await lapse(database, id);
    const holder = await holdRow(t, database, id);
    const { handOuts, lapsesInMs } = await look(database, environmentId);
    t.equal(handOuts[0], null);
    t.ok(lapsesInMs !== null && lapsesInMs <= 0, `${lapsesInMs} ms`);
    await holder.rollback();
  });

  await t.test('the environment is paused', async (t) => {
    const { database, environmentId, id } = await acked(t);
    await lapse(database, id);
    await database.rows(sql`update ${database.names.environments} set paused_at = clock_timestamp()`);
    const { handOuts, lapsesInMs } = await look(database, environmentId);
    t.equal(handOuts[0], null);
    t.ok(lapsesInMs !== null && lapsesInMs <= 0, `${lapsesInMs} ms`);
  });
});
