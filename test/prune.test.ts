import { sql } from 'kysely';
import t from 'tap';
import { createEnvironment } from '../src/control/environments.ts';
import { changeSettings } from '../src/control/settings.ts';
import type { Database } from '../src/db/connect.ts';
import { createQueue, requeueSetAside } from '../src/index.ts';
import { prune } from '../src/queue/prune.ts';
import { DEFAULT_SETTINGS } from '../src/queue/settings.ts';
import { ENGINES, lapse, testDatabase } from './support/harness.ts';

const SETTINGS = { ...DEFAULT_SETTINGS, retentionDays: 5 };

const finish = ({ rows, names }: Database, id: string, days: number, reason = 'worker') =>
  rows(sql`update ${names.workItems} set state = 'stopped', stop_reason = ${reason}, lease_expires_at = null,
    stopped_at = clock_timestamp() - ${days} * interval '1 day' where id = ${id}`);

/** How many rows of each table there are, of one environment. */
async function left({ rows, names }: Database, environmentId: string) {
  const { workItems, workInputs, requestIds, handOuts } = names;
  const ours = sql`(select w.seq from ${workItems} w where w.environment_id = ${environmentId})`;
  const [row] = await rows(sql<{ items: number; inputs: number; requestIds: number; handOuts: number }>`
    select (select count(*) from ${workItems} w where w.environment_id = ${environmentId})::integer as items,
      (select count(*) from ${workInputs} i where i.item_seq in ${ours})::integer as inputs,
      (select count(*) from ${requestIds} r where r.environment_id = ${environmentId})::integer as "requestIds",
      (select count(*) from ${handOuts} h where h.environment_id = ${environmentId})::integer as "handOuts"`);
  return row;
}

for (const engine of ENGINES) {
  t.test(engine, async (t) => {
    const database = await testDatabase(t, engine);
    const queue = createQueue({ database, settings: SETTINGS });
    t.teardown(() => queue.close());
    const newEnvironment = async (name: string, retentionDays: number | null = null) => {
      const { id } = await createEnvironment(database, { name, type: 'self_hosted' });
      await changeSettings(database, id, { retentionDays }, SETTINGS);
      return id;
    };

    t.test('each environment remembers for its own time, an item with all that belongs to it', async (t) => {
      const one = { items: 1, inputs: 1, requestIds: 1, handOuts: 1 };
      for (const [name, retentionDays, days, kept] of [
        ['shorter, past it', 2, 2.01, false],
        ['shorter, not yet', 2, 1.99, true],
        ["the process's, past it", null, 5.01, false],
        ["the process's, not yet", null, 4.99, true],
        ['longer, past it', 9, 9.01, false],
        ['longer, not yet', 9, 8.99, true],
      ] as const) {
        const environmentId = await newEnvironment(name, retentionDays);
        await queue.enqueue({ environmentId, sessionId: 'session', input: { a: 1 }, requestId: 'request' });
        const first = await queue.poll({ environmentId });
        await lapse(database, first?.item.id ?? '');
        const again = await queue.poll({ environmentId });
        await finish(database, again?.item.id ?? '', days);
        t.strictSame(await left(database, environmentId), one, name);
        t.equal((await prune(database, SETTINGS)).pruned, kept ? 0 : 1, name);
        const none = { items: 0, inputs: 0, requestIds: 0, handOuts: 0 };
        t.strictSame(await left(database, environmentId), kept ? one : none, name);
        if (!kept) {
          const renewed = await queue.enqueue({ environmentId, sessionId: 'session', requestId: 'request' });
          t.equal(renewed.created, true, 'the request id is forgotten');
        }
        await finish(database, again?.item.id ?? '', 0);
      }
    });

    t.test('finished items of either lane are pruned, whatever their reason; others never', async (t) => {
      const environmentId = await newEnvironment('lanes');
      for (const kind of ['tool_exec', 'model_turn'] as const) {
        for (const reason of ['worker', 'abandoned', 'exhausted', 'failed', 'cancelled']) {
          const { item } = await queue.enqueue({ environmentId, sessionId: reason, kind });
          await finish(database, item.id, 6, reason);
        }
        for (const state of ['queued', 'starting', 'active', 'stopping']) {
          const { item } = await queue.enqueue({ environmentId, sessionId: state, kind });
          await database.rows(sql`update ${database.names.workItems} set state = ${state},
            created_at = clock_timestamp() - interval '90 days', handed_out_at = clock_timestamp() - interval '80 days'
            where id = ${item.id}`);
        }
      }
      t.same(await prune(database, SETTINGS), { pruned: 10, more: false });
      t.match(await left(database, environmentId), { items: 8 });
    });

    t.test('what a set-aside item was put back as outlives it', async (t) => {
      const environmentId = await newEnvironment('put back');
      const { item } = await queue.enqueue({ environmentId, sessionId: 'session', input: 'kept' });
      await finish(database, item.id, 6, 'exhausted');
      const again = await requeueSetAside(database, { environmentId, id: item.id });
      t.match(await prune(database, SETTINGS), { pruned: 1 });
      t.match(await left(database, environmentId), { items: 1, inputs: 1 });
      t.match(await queue.retrieve({ environmentId, id: again.id }), { state: 'queued' });
    });

    t.test('one statement is bounded over all environments, and the next one goes on', async (t) => {
      const ids = [await newEnvironment('many', 1), await newEnvironment('more', 2), await newEnvironment('few', 9)];
      for (const id of ids) {
        await database.rows(sql`insert into ${database.names.workItems}
          (id, environment_id, session_id, kind, lane, state, stopped_at, stop_reason)
          select 'work_' || ${id}::text || n, ${id}, n::text, 'tool_exec', 'wire', 'stopped',
            clock_timestamp() - interval '3 days', 'worker' from generate_series(1, 40) n`);
      }
      t.same(await prune(database, SETTINGS), { pruned: 50, more: true });
      t.same(await prune(database, SETTINGS), { pruned: 30, more: false });
      const counts = [];
      for (const id of ids) counts.push((await left(database, id))?.items);
      t.strictSame(counts, [0, 0, 40]);
    });
  });
}
