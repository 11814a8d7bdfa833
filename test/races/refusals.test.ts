import { sql } from 'kysely';
import t, { type Test } from 'tap';
import { createEnvironment } from '../../src/control/environments.ts';
import { recordRefusals } from '../../src/queue/refusals.ts';
import { testClient, testDatabase } from '../support/harness.ts';

/** An environment with so many counts of more than a day ago. */
async function withOldCounts(t: Test, count: number) {
  const database = await testDatabase(t);
  const { refusals } = database.names;
  const { id: environmentId } = await createEnvironment(database, { name: 'refused', type: 'self_hosted' });
  await database.rows(sql`insert into ${refusals} (environment_id, refusal, minute, count, last_at)
    select ${environmentId}, 'heartbeat', m, 1, m
    from generate_series(1, ${count}::integer) n, lateral (select clock_timestamp() - interval '25 hours' - n * interval '1 minute') o(m)`);
  const left = async () =>
    (
      await database.rows(
        sql<{ n: number }>`select count(*)::integer as n from ${refusals} r where r.refusal = 'heartbeat'`,
      )
    )[0]?.n;
  const record = () => recordRefusals(database, [{ environmentId, refusal: 'credential', count: 1, ageMs: 0 }]);
  return { database, environmentId, left, record };
}

t.test('a write prunes at most 500 old counts, and the next one goes on', async (t) => {
  const { left, record } = await withOldCounts(t, 501);
  await record();
  t.equal(await left(), 1);
  await record();
  t.equal(await left(), 0);
});

t.test('an old count that another replica prunes is passed over, not waited for', async (t) => {
  const { database, left, record } = await withOldCounts(t, 3);
  const client = await testClient(t);
  await client.query('begin');
  await client.query(`select from ${database.schema}.refusals order by minute limit 1 for update`);
  await record();
  t.equal(await left(), 1);
  await client.query('rollback');
});
