import { sql } from 'kysely';
import t, { type Test } from 'tap';
import { createEnvironment } from '../src/control/environments.ts';
import { createQueue } from '../src/create-queue.ts';
import { comeDue } from '../src/process/come-due.ts';
import { testDatabase } from './support/harness.ts';
import { holdRow } from './support/interleave.ts';

t.test('what has come due is claimed by its priority, however many of a lower one were due before', async (t) => {
  const database = await testDatabase(t);
  const queue = createQueue({ database });
  t.teardown(() => queue.close());
  const { id: environmentId } = await createEnvironment(database, { name: 'C', type: 'cloud' });
  const enqueue = (sessionId: string, priority: number, notBefore?: string) =>
    queue.enqueue({
      ...{ environmentId, sessionId, kind: 'model_turn', priority },
      ...(notBefore === undefined ? {} : { notBefore }),
    });
  const claim = async () => (await queue.claim('model_turn', { ttlSeconds: 60 }))?.sessionId;

  // As many as a claim reads of what is due.
  for (let n = 0; n < 16; n++) await enqueue(`low ${n}`, -1, '2020-01-01T00:00:00Z');
  await enqueue('high', 1, '2020-01-02T00:00:00Z');
  await enqueue('plain', 0);
  await queue.sweep();
  t.equal((await queue.nextEligible('model_turn'))?.sessionId, 'high');
  t.same([await claim(), await claim(), await claim()], ['high', 'plain', 'low 0']);
});

/** Rows as they are, where a test moves them; the instants stand in the past. */
async function dueRows(t: Test) {
  const database = await testDatabase(t);
  const { workItems } = database.names;
  const { id: environmentId } = await createEnvironment(database, { name: 'rows', type: 'cloud' });
  const put = (name: string, kind: string, state: string, lane: string, count: number, ago: string) =>
    database.rows(sql`
      insert into ${workItems} (id, environment_id, session_id, kind, lane, state, next_attempt_at)
      select ${name}::text || n, ${environmentId}, ${name}::text || n, ${kind}, ${lane}, ${state}, now() - ${ago}::interval
      from generate_series(1, ${count}::integer) n`);
  const waiting = async () =>
    (
      await database.rows(
        sql<{ id: string }>`select w.id from ${workItems} w where w.next_attempt_at is not null order by w.id`,
      )
    ).map(({ id }) => id);
  return { database, put, waiting };
}

t.test(
  'only what is queued in this lane comes due: what has ended stays as it was, and so does what is polled',
  async (t) => {
    const { database, put, waiting } = await dueRows(t);
    await put('queued', 'model_turn', 'queued', 'process', 1, '1 minute');
    await put('stopped', 'model_turn', 'stopped', 'process', 1, '1 minute');
    await put('polled', 'tool_exec', 'queued', 'wire', 1, '1 minute');
    await put('later', 'model_turn', 'queued', 'process', 1, '-1 minute');
    t.strictSame(await comeDue(database), { topics: ['kind:model_turn'], more: false });
    t.strictSame(await waiting(), ['later1', 'polled1', 'stopped1']);
  },
);

t.test('a pass is bounded for each kind, and says that there is more', async (t) => {
  const { database, put, waiting } = await dueRows(t);
  await put('old', 'model_turn', 'queued', 'process', 501, '1 hour');
  await put('young', 'web_exec', 'queued', 'process', 1, '1 minute');
  const { topics, more } = await comeDue(database);
  t.strictSame([topics.sort(), more], [['kind:model_turn', 'kind:web_exec'], true]);
  t.match(await waiting(), [/^old/]);
  t.equal((await waiting()).length, 1);
  t.strictSame(await comeDue(database), { topics: ['kind:model_turn'], more: false });
  t.strictSame(await waiting(), []);
});

t.test('what somebody holds is passed over, and comes due by the next pass', async (t) => {
  const { database, put, waiting } = await dueRows(t);
  await put('free', 'model_turn', 'queued', 'process', 1, '1 minute');
  await put('held', 'model_turn', 'queued', 'process', 1, '1 hour');
  const held = await holdRow(t, database, 'held1');
  await comeDue(database);
  t.strictSame(await waiting(), ['held1']);
  await held.rollback();
  await comeDue(database);
  t.strictSame(await waiting(), []);
});
