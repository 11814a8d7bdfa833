import { sql } from 'kysely';
import t, { type Test } from 'tap';
import { type Answer, ENGINES, lapse, rowOf, testDatabase, testServer, until } from '../support/harness.ts';
import { itemIn, newPlace, type Place, type RowName, STALE_TOKEN, secondsUntilLapse } from '../support/places.ts';

// Not the defaults, so that no constant can pass for a setting.
const SETTINGS = { leaseTtlSeconds: 110, leaseTtlSecondsMax: 200, startupLeaseSeconds: 70 };
const TOKEN = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$/;

/** A token far ahead of the clock: whatever is minted next has to come from the one before, as within one instant. */
async function setToken({ database }: Place, id: string, token: string): Promise<void> {
  await database.rows(
    sql`update ${database.names.workItems} set last_heartbeat = ${token}::timestamptz where id = ${id}`,
  );
}

/** Contract §5, field by field. */
function isRefusal(t: Test, answer: Answer, state: string, token: string | null, ttl: number, message?: RegExp): void {
  t.equal(answer.status, 412);
  const { message: said, ...error } = answer.json.error;
  t.strictSame(
    { ...answer.json, error },
    {
      type: 'error',
      error: {
        type: 'invalid_request_error',
        details: {
          error_code: 'heartbeat_precondition_failed',
          current_state: { state, last_heartbeat: token, lease_extended: false, ttl_seconds: ttl },
        },
      },
      request_id: answer.headers.get('request-id'),
    },
  );
  t.match(said, message ?? /./);
}

for (const engine of ENGINES) {
  t.test(engine, async (t) => {
    const server = await testServer(t, { engine, settings: SETTINGS });
    const { database } = server;

    t.test('tokens rise strictly, carry microseconds and are the same text wherever they are read', async (t) => {
      const place = await newPlace(server);
      const { id, token } = await itemIn(place, 'active, lease live');
      let last = token ?? '';
      for (let beat = 0; beat < 25; beat++) {
        const { last_heartbeat: next } = (await place.beat(id, last)).json;
        t.match(next, TOKEN);
        t.ok(next > last, `${next} after ${last}`);
        last = next;
      }
      t.equal((await place.retrieve(id)).json.latest_heartbeat_at, last);
      t.equal((await place.get('')).json.data[0].latest_heartbeat_at, last);
      t.equal((await place.beat(id, STALE_TOKEN)).json.error.details.current_state.last_heartbeat, last);
      t.equal((await place.stop(id)).status, 204);
      t.equal((await place.beat(id, STALE_TOKEN)).json.last_heartbeat, last);
    });

    t.test('beats that the clock cannot tell apart differ by a microsecond each', async (t) => {
      const place = await newPlace(server);
      const { id } = await itemIn(place, 'active, lease live');
      await setToken(place, id, '2999-12-31T23:59:58.999990Z');
      let last = '2999-12-31T23:59:58.999990Z';
      const tokens: string[] = [];
      for (let beat = 0; beat < 12; beat++) {
        last = (await place.beat(id, last)).json.last_heartbeat;
        tokens.push(last.slice(17));
      }
      const ends = ['1', '2', '3', '4', '5', '6', '7', '8', '9'].map((digit) => `58.99999${digit}Z`);
      t.strictSame(tokens, [...ends, '59.000000Z', '59.000001Z', '59.000002Z']);
    });

    t.test('a token that is not byte-equal is refused, also where it means the same instant', async (t) => {
      const place = await newPlace(server);
      const { id } = await itemIn(place, 'active, lease live');
      const token = '2030-01-02T03:04:05.678900Z';
      await setToken(place, id, token);
      const before = await rowOf(database, id);
      for (const other of [
        ...['2030-01-02T03:04:05.678900+00:00', '2030-01-02T03:04:05.6789Z', '2030-01-02 03:04:05.678900Z'],
        ...['2030-01-02T03:04:05.678900', '2030-01-02t03:04:05.678900z', '2030-01-02T03:04:05.678900000Z'],
        ...['2030-01-02T04:04:05.678900+01:00', ` ${token}`, `${token} `, '2030-01-02T03:04:05.678901Z'],
        ...['2030-01-02T03:04:05.678899Z', '2030-01-02T03:04:05.678Z', '2030-01-02T03:04:05Z', '1893553445.6789'],
        ...['no_heartbeat', 'NO_HEARTBEAT', ' ', 'null', "' or true --", '9999-99-99T99:99:99.999999Z', 'ü'.repeat(64)],
      ]) {
        t.equal((await place.beat(id, other)).status, 412, JSON.stringify(other));
      }
      t.strictSame(await rowOf(database, id), before);
      t.equal((await place.beat(id, token)).status, 200);
    });

    for (const [row, expected, state, message] of [
      ['queued, never handed out', 'NO_HEARTBEAT', 'queued', /never acked/],
      ['queued, reservation live', STALE_TOKEN, 'queued', /never acked/],
      ['starting, lease live', STALE_TOKEN, 'starting', /stale token/],
      ['active, lease live', 'NO_HEARTBEAT', 'active', /claimed by another holder/],
      ['active, lease live', STALE_TOKEN, 'active', /stale token/],
      ['stopped, acked but never active', 'NO_HEARTBEAT', 'stopped', undefined],
      ['stopped, never acked', STALE_TOKEN, 'stopped', undefined],
    ] as const) {
      t.test(
        `${row}, ${expected}: a 412 that tells the current state${message ? ` and says ${message}` : ''}`,
        async (t) => {
          const place = await newPlace(server);
          const { id, token } = await itemIn(place, row);
          isRefusal(t, await place.beat(id, expected), state, token, SETTINGS.leaseTtlSeconds, message);
        },
      );
    }

    t.test('a 412 tells the TTL in force and the current token, not the ones before', async (t) => {
      const place = await newPlace(server);
      const { id, token } = await itemIn(place, 'active, lease live');
      const { last_heartbeat: current } = (await place.beat(id, token ?? '', { ttl: 33 })).json;
      isRefusal(t, await place.beat(id, token ?? '', { ttl: 44 }), 'active', current, 33, /stale token/);
    });

    t.test('the TTL: desired, by default, and clamped to the maximum; the lease ends accordingly', async (t) => {
      const place = await newPlace(server);
      const { id, token } = await itemIn(place, 'starting, lease live');
      let last = token ?? 'NO_HEARTBEAT';
      for (const [desired, ttl] of [
        ...([
          [33, 33],
          [undefined, 110],
          [1, 1],
          [200, 200],
          [201, 200],
          [Number.MAX_SAFE_INTEGER, 200],
        ] as const),
      ]) {
        const { json } = await place.beat(id, last, desired === undefined ? {} : { ttl: desired });
        t.equal(json.ttl_seconds, ttl, `desired ${desired}`);
        const seconds = (await secondsUntilLapse(database, id, 'last_heartbeat')) ?? 0;
        t.ok(Math.abs(seconds - ttl) < 0.5, `a lease of ${seconds} s`);
        last = json.last_heartbeat;
      }
    });

    for (const row of ['starting, lease lapsed', 'active, lease lapsed'] as const) {
      t.test(`${row} and taken by nobody: a heartbeat still extends, and no poll gets the item`, async (t) => {
        const place = await newPlace(server);
        const { id, token } = await itemIn(place, row);
        await lapse(database, id, 3_600);
        t.match((await place.beat(id, token ?? 'NO_HEARTBEAT')).json, { state: 'active', lease_extended: true });
        t.ok(((await secondsUntilLapse(database, id)) ?? 0) > 100);
        t.equal((await place.poll()).text, 'null');
      });
    }

    for (const [row, state] of [
      ['stopping', 'stopping'],
      ['stopping, its lease lapsed', 'stopping'],
      ['stopped', 'stopped'],
    ] as const) {
      t.test(`${row}: any value, marked or not, is answered with what is, and extends nothing`, async (t) => {
        const place = await newPlace(server);
        const active = await itemIn(place, 'active, lease live');
        const { id } = active;
        const { last_heartbeat: token } = (await place.beat(id, active.token ?? '', { ttl: 33 })).json;
        await (state === 'stopped' ? place.forceStop(id) : place.stop(id));
        if (row.includes('lapsed')) await lapse(database, id);
        const before = await rowOf(database, id);
        const body = { type: 'work_heartbeat', last_heartbeat: token, lease_extended: false, state, ttl_seconds: 33 };
        for (const value of [token, active.token, 'NO_HEARTBEAT', 'whatever']) {
          for (const mark of [{}, { retry: '1' }]) {
            const answer = await place.beat(id, value, { ttl: 50, ...mark });
            t.strictSame([answer.status, answer.json], [200, body], `${value} ${JSON.stringify(mark)}`);
          }
        }
        t.strictSame(await rowOf(database, id), before);
      });
    }
  });
}

t.test('postgres: heartbeats are HOT updates: they touch no index', async (t) => {
  // One connection, because each backend reports its own counts.
  const database = await testDatabase(t, 'postgres', { poolConnectionsMax: 1 });
  const place = await newPlace(await testServer(t, { database }));
  const { id, token } = await itemIn(place, 'active, lease live' satisfies RowName);
  const counts = async () => {
    const [row] = await database.rows(sql<{ updates: number; hot: number }>`
      select n_tup_upd::int as updates, n_tup_hot_upd::int as hot from pg_stat_user_tables
      where schemaname = ${database.schema} and relname = 'work_items'`);
    return row ?? { updates: 0, hot: 0 };
  };
  const beats = 200;
  const before = await counts();
  let last = token ?? '';
  for (let beat = 0; beat < beats; beat++) last = (await place.beat(id, last)).json.last_heartbeat;
  let after = before;
  await until('the beats are counted', async () => {
    after = await counts();
    return after.updates - before.updates >= beats;
  });
  const hot = after.hot - before.hot;
  t.ok(hot >= 0.9 * beats, `${hot} of ${beats} updates were HOT`);
});
