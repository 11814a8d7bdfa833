import { sql } from 'kysely';
import t, { type Test } from 'tap';
import type { Database } from '../../src/db/connect.ts';
import { ENGINES, lapse, rowOf, testClient, testServer } from '../support/harness.ts';
import { itemIn, newPlace, type Place, type RowName, rowBySeq, setLease } from '../support/places.ts';

const statesIn = async ({ database, environment }: Place): Promise<Record<string, number>> => {
  const rows = await database.rows(sql<{ state: string; n: number }>`
    select state, count(*)::int as n from ${database.names.workItems}
    where environment_id = ${environment.id} group by state order by state`);
  return Object.fromEntries(rows.map(({ state, n }) => [state, n]));
};

/** Many items that were told to stop and whose workers went away. */
async function abandon(place: Place, count: number): Promise<string[]> {
  const ids = await Promise.all(Array.from({ length: count }, () => place.enqueue()));
  const { database, environment } = place;
  await database.rows(sql`update ${database.names.workItems}
    set state = 'stopping', stop_requested_at = clock_timestamp(), lease_expires_at = clock_timestamp() - interval '1 hour'
    where environment_id = ${environment.id}`);
  return ids;
}

/** Holds a row as an application's transaction would, until the answer is called. */
async function lockRow(t: Test, database: Database, id: string): Promise<() => Promise<unknown>> {
  const client = await testClient(t);
  await client.query('begin');
  await client.query(`select from ${database.schema}.work_items where id = $1 for update`, [id]);
  return () => client.query('rollback');
}

for (const engine of ENGINES) {
  t.test(engine, async (t) => {
    const server = await testServer(t, { engine });
    const { database, queue } = server;

    t.test('a poll that finds no work finalises at most 50 abandoned items, the next one the rest', async (t) => {
      const [place, elsewhere] = [await newPlace(server), await newPlace(server)];
      await abandon(place, 53);
      await abandon(elsewhere, 1);
      t.equal((await place.poll()).text, 'null');
      t.strictSame(await statesIn(place), { stopped: 50, stopping: 3 });
      t.equal((await place.poll()).text, 'null');
      t.strictSame(await statesIn(place), { stopped: 53 });
      t.strictSame(await statesIn(elsewhere), { stopping: 1 }, 'another environment is left to its own polls');
    });

    t.test('a poll that hands out an item finalises too', async (t) => {
      const place = await newPlace(server);
      await abandon(place, 2);
      const id = await place.enqueue();
      t.equal((await place.poll()).json.id, id);
      t.strictSame(await statesIn(place), { queued: 1, stopped: 2 });
    });

    t.test('a waiting poll finalises as well', async (t) => {
      const place = await newPlace(server);
      await abandon(place, 1);
      t.equal((await place.poll('?block_ms=1')).text, 'null');
      t.strictSame(await statesIn(place), { stopped: 1 });
    });

    for (const row of ['stopping, lease lapsed', 'stopping, no lease'] as const) {
      t.test(`the sweep finalises an item ${row} without any poll`, async (t) => {
        const place = await newPlace(server);
        const { id, token } = await itemIn(place, row);
        await queue.sweep();
        t.match(await rowOf(database, id), { state: 'stopped', stopped_at: String, lease_expires_at: null });
        t.match((await place.beat(id, token ?? '')).json, { state: 'stopped', lease_extended: false });
      });
    }

    for (const row of [
      ...(['queued, never handed out', 'queued, reservation live', 'queued, reservation lapsed'] as const),
      ...(['starting, lease live', 'active, lease live', 'stopping, lease live', 'stopped, ever active'] as const),
      ...(['starting, lease lapsed', 'active, lease lapsed'] as const), // by one second: its holder may still be late
    ] satisfies RowName[]) {
      t.test(`the sweep leaves an item ${row} as it is`, async (t) => {
        const place = await newPlace(server);
        const { id } = await itemIn(place, row);
        if (row.includes('lapsed')) await lapse(database, id, 1);
        const before = await rowOf(database, id);
        await queue.sweep();
        t.strictSame(await rowOf(database, id), before);
      });
    }

    for (const row of ['starting, lease lapsed', 'active, lease lapsed'] as const) {
      t.test(`the sweep puts back an item ${row} for 2 s: queued and counted, its id kept until a poll`, async (t) => {
        const place = await newPlace(server);
        const { id, token } = await itemIn(place, row, { team: 'tools' });
        const { created_at } = (await place.retrieve(id)).json;
        t.match((await place.get('/stats')).json, { depth: 0, pending: 0, oldest_queued_at: null });
        await lapse(database, id, 2);
        await queue.sweep();
        const reset = { acknowledged_at: null, started_at: null, latest_heartbeat_at: null };
        t.match((await place.retrieve(id)).json, {
          id,
          state: 'queued',
          created_at,
          metadata: { team: 'tools' },
          ...reset,
        });
        t.match((await place.get('/stats')).json, { depth: 1, pending: 0, oldest_queued_at: created_at });
        t.equal((await place.beat(id, token ?? 'NO_HEARTBEAT')).status, 412, 'what it held is over');
        const again = await place.poll();
        t.match(again.json, { state: 'queued', created_at, metadata: { team: 'tools' }, ...reset });
        t.not(again.json.id, id);
        t.match((await place.ack(id)).json.error, { type: 'not_found_error', message: /handed out again/ });
      });
    }

    t.test('a holder whose item was put back may ack again under its id, as long as nobody took it', async (t) => {
      const place = await newPlace(server);
      const { id, token } = await itemIn(place, 'active, lease lapsed');
      await lapse(database, id, 3);
      await queue.sweep();
      t.equal((await place.ack(id)).json.state, 'starting');
      t.equal((await place.beat(id, token ?? '', { retry: '1' })).status, 412, 'the old token is of no use');
      t.match((await place.beat(id, 'NO_HEARTBEAT')).json, { state: 'active', lease_extended: true });
      t.equal((await place.poll()).text, 'null');
    });

    for (const [row, status] of [
      ['active, lease live', 200],
      ['starting, lease live', 412],
    ] as const satisfies [RowName, number][]) {
      t.test(`stopped after the sweep put it back, an item that was ${row} answers its holder ${status}`, async (t) => {
        const place = await newPlace(server);
        const { id, token } = await itemIn(place, row);
        await lapse(database, id, 3);
        await queue.sweep();
        t.equal((await place.stop(id)).status, 204);
        const before = await rowOf(database, id);
        const { status: answered, json } = await place.beat(id, token ?? 'NO_HEARTBEAT');
        t.equal(answered, status);
        t.match(status === 200 ? json : json.error.details.current_state, { state: 'stopped', lease_extended: false });
        t.strictSame(await rowOf(database, id), before);
      });
    }

    t.test('a late heartbeat within the 2 s is kept by the sweep', async (t) => {
      const place = await newPlace(server);
      const { id, token } = await itemIn(place, 'active, lease lapsed');
      await setLease(place, id, -60);
      t.equal((await place.beat(id, token ?? '')).status, 200);
      const before = await rowOf(database, id);
      await queue.sweep();
      t.strictSame(await rowOf(database, id), before);
    });

    if (engine !== 'postgres') return;
    t.test('an abandoned item that somebody has locked does not hold up its neighbour', async (t) => {
      const place = await newPlace(server);
      const [held = '', other = ''] = await abandon(place, 2);
      const unlock = await lockRow(t, database, held);
      t.equal((await place.poll()).text, 'null');
      t.strictSame(
        [(await rowOf(database, held)).state, (await rowOf(database, other)).state],
        ['stopping', 'stopped'],
      );
      await unlock();
    });

    for (const row of ['queued, never handed out', 'active, lease lapsed', 'stopping, lease lapsed'] as const) {
      t.test(
        `an item ${row} that somebody has locked stalls neither poll nor sweep, and is seen to later`,
        async (t) => {
          const place = await newPlace(server);
          const { id } = await itemIn(place, row);
          if (row.includes('lapsed')) await lapse(database, id, 3);
          const before = await rowOf(database, id);
          const unlock = await lockRow(t, database, id);
          t.equal((await place.poll()).text, 'null');
          await queue.sweep();
          t.strictSame(await rowOf(database, id), before);
          await unlock();
          const { text } = await place.poll();
          const after = await rowBySeq(database, before.seq);
          t.strictSame(
            [after.state, text === 'null'],
            row.startsWith('stopping') ? ['stopped', true] : ['queued', false],
          );
        },
      );
    }
  });
}
