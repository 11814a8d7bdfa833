import { sql } from 'kysely';
import t from 'tap';
import { history } from '../src/queue/history.ts';
import { DEFAULT_SETTINGS } from '../src/queue/settings.ts';
import { sweep } from '../src/queue/sweep.ts';
import { ENGINES, lapse, rowOf, testDatabase, testServer } from './support/harness.ts';
import { itemIn, newPlace } from './support/places.ts';

for (const engine of ENGINES) {
  t.test(engine, async (t) => {
    const database = await testDatabase(t, engine);
    const server = await testServer(t, { database });
    const { workItems } = database.names;

    t.test('a sweep whose bound was reached by two things together says that there is more', async (t) => {
      const { environment } = await newPlace(server);
      await database.rows(sql`
        insert into ${workItems} (id, environment_id, session_id, kind, lane, state, lease_expires_at, hand_out_count, max_hand_outs)
        select 'work_' || n, ${environment.id}, n::text, 'tool_exec', 'wire', 'active', clock_timestamp() - interval '1 minute', 1,
          1 + n % 2
        from generate_series(1, 501) n`);
      t.match(await sweep(database, DEFAULT_SETTINGS), { requeued: 250, setAside: 250, more: true });
      t.match(await sweep(database, DEFAULT_SETTINGS), { requeued: 1, setAside: 0, more: false });
    });

    for (const how of ['poll', 'sweep']) {
      t.test(`what a ${how} ends because its lease lapsed tells when that was`, async (t) => {
        for (const [row, cap] of [
          ['stopping, lease lapsed', null],
          ['active, lease lapsed', 1],
          ['queued, reservation lapsed', 1],
        ] as const) {
          const place = await newPlace(server);
          const environmentId = place.environment.id;
          const { id } = await itemIn(place, row);
          await database.rows(sql`update ${workItems} set max_hand_outs = ${cap}, is_last_hand_out = ${cap !== null},
            acknowledged_at = acknowledged_at - interval '1 hour', started_at = started_at - interval '1 hour'
            where id = ${id}`);
          await lapse(database, id, 3);
          const { handOuts: before } = await history(database, { environmentId, id });
          t.type(before[0]?.lapsedAt, 'string');
          await (how === 'poll' ? place.poll() : server.queue.sweep());
          t.match(await rowOf(database, id), { state: 'stopped' });
          const { handOuts: after } = await history(database, { environmentId, id });
          t.equal(after[0]?.lapsedAt, before[0]?.lapsedAt, row);
        }
      });
    }
  });
}
