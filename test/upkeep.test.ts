import { sql } from 'kysely';
import t from 'tap';
import { createEnvironment, createQueue } from '../src/index.ts';
import { prune } from '../src/queue/prune.ts';
import { DEFAULT_SETTINGS } from '../src/queue/settings.ts';
import { recordSightings } from '../src/queue/sightings.ts';
import { sweep } from '../src/queue/sweep.ts';
import { STATEMENTS, watch, watchPromise } from './support/gates.ts';
import { ENGINES, lapse, testDatabase, until } from './support/harness.ts';

const RETENTION = { retentionDays: 7 };
/** What one statement of the sweep does at most of each thing; the contract leaves it open, the library promises a bound. */
const BOUND_MAX = 1_000;

for (const engine of ENGINES) {
  t.test(engine, async (t) => {
    const database = await testDatabase(t, engine);
    const { workItems, handOuts, workerSightings } = database.names;
    const environmentOf = async (name: string) => (await createEnvironment(database, { name, type: 'self_hosted' })).id;
    const count = async (what: ReturnType<typeof sql>) =>
      (await database.rows(sql<{ n: number }>`select count(*)::integer as n from ${what}`))[0]?.n;

    t.test('sightings that cannot be written never fail a poll, nor stats', async (t) => {
      const sightings = watch(database, STATEMENTS.sightings);
      const queue = createQueue({ database: sightings.database });
      t.teardown(() => queue.close());
      const environmentId = await environmentOf('failing sightings');
      const { item } = await queue.enqueue({ environmentId, sessionId: 'session' });
      sightings.fail(new Error('no'));
      t.equal((await queue.poll({ environmentId, workerId: 'worker' }))?.item.id, item.id);
      t.equal((await queue.stats(environmentId)).workersPolling, 0);
      t.ok(sightings.begun() > 0, 'it was tried');
      sightings.fail(undefined);
      await queue.poll({ environmentId, workerId: 'worker' });
      t.equal((await queue.stats(environmentId)).workersPolling, 1);
    });

    t.test(
      'a worker is seen while its poll waits, counts for 30 s after, and is forgotten after an hour',
      async (t) => {
        const queue = createQueue({ database });
        t.teardown(() => queue.close());
        const environmentId = await environmentOf('sightings');
        const polls = ['a', 'b', 'a'].map((workerId) => queue.poll({ environmentId, workerId, blockMs: 999 }));
        t.equal((await queue.stats(environmentId)).workersPolling, 2);
        queue.stopWaiting();
        await Promise.all(polls);
        t.equal((await queue.stats(environmentId)).workersPolling, 2);
        const seen = (workerId: string, seconds: number) =>
          database.rows(sql`update ${workerSightings} set seen_at = clock_timestamp() - ${seconds} * interval '1 second'
          where environment_id = ${environmentId} and worker_id = ${workerId}`);
        await seen('a', 31);
        await seen('b', 25);
        t.equal((await queue.stats(environmentId)).workersPolling, 1);
        await seen('a', 3_601);
        await seen('b', 3_500);
        await queue.sweep();
        t.same(
          await database.rows(sql`select worker_id from ${workerSightings} where environment_id = ${environmentId}`),
          [{ worker_id: 'b' }],
        );
      },
    );

    t.test(
      'a sighting that arrives late takes nothing back, one of an unknown environment is passed over',
      async (t) => {
        const environmentId = await environmentOf('late sightings');
        const at = () =>
          database.rows(
            sql`select seen_at::text as at from ${workerSightings} where environment_id = ${environmentId}`,
          );
        await recordSightings(database, [
          { environmentId: 'env_unknown', workerId: 'worker', ageMs: 0 },
          { environmentId, workerId: 'worker', ageMs: 0.4 },
        ]);
        const before = await at();
        t.equal(before.length, 1);
        await recordSightings(database, [{ environmentId, workerId: 'worker', ageMs: 10_000 }]);
        t.same(await at(), before);
      },
    );

    t.test('what has been finished for the retention time is pruned with its old ids; the rest stays', async (t) => {
      const queue = createQueue({ database, settings: RETENTION });
      t.teardown(() => queue.close());
      const environmentId = await environmentOf('retention');
      const ids: Record<string, string> = {};
      for (const name of ['old', 'young', 'active']) {
        await queue.enqueue({ environmentId, sessionId: name });
        const first = await queue.poll({ environmentId });
        await lapse(database, first?.item.id ?? '');
        const again = await queue.poll({ environmentId });
        ids[name] = again?.item.id ?? '';
        await queue.ack([{ environmentId, id: ids[name] }]);
        if (name !== 'active') {
          await queue.stop([{ environmentId, id: ids[name], force: true, reason: 'worker' }]);
        }
      }
      const old = (id: string | undefined, days: number) =>
        database.rows(sql`update ${workItems} set created_at = clock_timestamp() - interval '30 days',
          stopped_at = case state when 'stopped' then clock_timestamp() - ${days} * interval '1 day' end where id = ${id}`);
      await old(ids.old, 7.01);
      await old(ids.young, 6.99);
      await old(ids.active, 30);
      await queue.sweep();
      const left = (await queue.list(environmentId, { limit: 10 })).items.map((item) => item.sessionId);
      t.same(left.sort(), ['active', 'young']);
      t.equal(await count(sql`${handOuts} where environment_id = ${environmentId}`), 2, 'their old ids are known');
    });

    t.test(
      'one statement of the sweep is bounded and says that there is more; a sweep goes on until there is none',
      async (t) => {
        const environmentId = await environmentOf('bounds');
        const items = BOUND_MAX + 1;
        const states = {
          finalised: sql`'stopping', null::timestamptz, null::timestamptz`,
          requeued: sql`'active', clock_timestamp() - interval '1 hour', null::timestamptz`,
          pruned: sql`'stopped', null::timestamptz, clock_timestamp() - interval '8 days'`,
        };
        for (const [what, state] of Object.entries(states)) {
          await database.rows(sql`
          insert into ${workItems} (id, environment_id, session_id, kind, lane, state, lease_expires_at, stopped_at)
          select 'work_' || ${what}::text || n, ${environmentId}, ${what}::text || n, 'tool_exec', 'wire', ${state}
          from generate_series(1, ${items}::integer) n`);
        }
        const first = await sweep(database, DEFAULT_SETTINGS);
        const { pruned, more } = await prune(database, DEFAULT_SETTINGS);
        for (const [what, done] of Object.entries({
          ...{ finalised: first.finalised, requeued: first.requeued },
          pruned,
        })) {
          t.ok(done > 0 && done <= BOUND_MAX, `${done} ${what}`);
        }
        t.same([first.more, more], [true, true]);
        t.same(first.topics, [environmentId]);
        const queue = createQueue({ database });
        t.teardown(() => queue.close());
        await queue.sweep();
        t.match(await sweep(database, DEFAULT_SETTINGS), { finalised: 0, requeued: 0, more: false });
        t.same(await prune(database, DEFAULT_SETTINGS), { pruned: 0, more: false });
        t.equal(await count(sql`${workItems} where environment_id = ${environmentId} and state = 'queued'`), items);
        t.equal(await count(sql`${workItems} where environment_id = ${environmentId} and state = 'stopped'`), items);
        t.equal(
          await count(sql`${workItems} where environment_id = ${environmentId}`),
          2 * items,
          'a third was pruned',
        );
      },
    );

    t.test('what the sweep puts back wakes a waiting poll', async (t) => {
      const looks = watch(database, STATEMENTS.look);
      const queue = createQueue({ database: looks.database });
      t.teardown(() => queue.close());
      const environmentId = await environmentOf('swept');
      await queue.enqueue({ environmentId, sessionId: 'session' });
      const id = (await queue.poll({ environmentId }))?.item.id ?? '';
      await queue.ack([{ environmentId, id }]);
      const poll = queue.poll({ environmentId, blockMs: 999 });
      await until('it was looked for', () => looks.ended() === 2);
      await lapse(database, id, 10);
      await queue.sweep();
      t.match(await poll, { item: { sessionId: 'session' } }, 'woken, not out of time');
    });

    t.test('close ends waiting polls, lets a running sweep end, and writes the last sightings', async (t) => {
      const sweeps = watch(database, STATEMENTS.lookOver);
      const queue = createQueue({ database: sweeps.database, settings: { sweepIntervalMs: 10 } });
      const environmentId = await environmentOf('close');
      queue.start();
      sweeps.close();
      await until('a sweep is under way', () => sweeps.ended() > 0);
      const poll = queue.poll({ environmentId, workerId: 'worker', blockMs: 999 });
      const closed = watchPromise(queue.close());
      t.equal(await poll, null);
      t.equal(queue.isListening(), false);
      t.notOk(closed.settled, 'the sweep is still under way');
      sweeps.open();
      await until('it is closed', () => closed.settled);
      t.equal(await count(sql`${workerSightings} where environment_id = ${environmentId}`), 1);
      const begun = sweeps.begun();
      await queue.enqueue({ environmentId, sessionId: 'session' });
      t.match(await queue.poll({ environmentId }), { item: { sessionId: 'session' } }, 'the verbs still work');
      t.equal(sweeps.begun(), begun, 'no sweep begins any more');
    });

    t.test('once its database is closed, every verb is unavailable', async (t) => {
      const other = await testDatabase(t, engine);
      const queue = createQueue({ database: other });
      await queue.close();
      await other.close();
      const ref = { environmentId: 'env_x', id: 'work_x' };
      const verbs: (() => Promise<unknown>)[] = [
        () => queue.enqueue({ environmentId: 'env_x', sessionId: 'session' }),
        () => queue.poll({ environmentId: 'env_x', workerId: 'worker' }),
        () => queue.ack([ref]),
        () => queue.heartbeat([{ ...ref, expectedLastHeartbeat: 'NO_HEARTBEAT', isRetry: false }]),
        () => queue.stop([{ ...ref, force: false, reason: 'worker' }]),
        () => queue.patchMetadata(ref, { a: 'b' }),
        () => queue.retrieve(ref),
        () => queue.list('env_x', { limit: 1 }),
        () => queue.stats('env_x'),
        () => queue.sweep(),
      ];
      for (const verb of verbs) {
        await t.rejects(
          verb().then(() => {}),
          { code: 'unavailable' },
          `${verb}`,
        );
      }
    });
  });
}
