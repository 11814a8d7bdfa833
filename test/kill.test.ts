import { sql } from 'kysely';
import pg from 'pg';
import t, { type Test } from 'tap';
import type { Database } from '../src/db/connect.ts';
import { DatabaseUnavailable } from '../src/db/failures.ts';
import {
  type CallOptions,
  databaseUrl,
  OPERATOR_KEY,
  testClient,
  testDatabase,
  testServer,
  until,
} from './support/harness.ts';
import { holding } from './support/interleave.ts';

/** A database whose backends can be told from those of other tests by their application name. */
async function killableDatabase(t: Test, poolConnectionsMax = 8) {
  const name = `kill_${process.pid}_${Math.random().toString(36).slice(2)}`;
  const url = new URL(databaseUrl());
  url.searchParams.set('application_name', name);
  const { schema } = await testDatabase(t);
  const database = await testDatabase(t, 'postgres', { connectionString: url.href, schema, poolConnectionsMax });
  const killer = await testClient(t);
  const kill = async (where = 'true'): Promise<number> => {
    const killed = await killer.query(
      `select pg_terminate_backend(pid) from pg_stat_activity where application_name = $1 and ${where}`,
      [name],
    );
    return killed.rowCount ?? 0;
  };
  /** Kills whoever waits for a lock, once somebody does. */
  const killBlocked = () =>
    until('a blocked backend was killed', async () => (await kill(`wait_event_type = 'Lock'`)) > 0);
  return { database, kill, killBlocked };
}

/** Holds all statements on work items until the release. */
async function lockItems(t: Test, { schema }: Database): Promise<() => Promise<unknown>> {
  const client = await testClient(t);
  await client.query('begin');
  await client.query(`lock table ${schema}.work_items in access exclusive mode`);
  return () => client.query('rollback');
}

t.test(
  'backends killed under a loop of calls fail calls with unavailable only, and calls work again after',
  async (t) => {
    const { database, kill } = await killableDatabase(t);
    const server = await testServer(t, { database });
    const { call, work, queue, environment } = server;
    const outcomes = new Map<string, number>();
    let [running, cycles] = [true, 0];
    const note = (outcome: string) => outcomes.set(outcome, (outcomes.get(outcome) ?? 0) + 1);
    const loop = async (n: number) => {
      for (let round = 0; running; round++) {
        try {
          await queue.enqueue({ environmentId: environment.id, sessionId: `${n}-${round}` });
        } catch (error) {
          note(error instanceof DatabaseUnavailable ? error.code : `${error}`);
        }
        const polled = await call('GET', work('/poll?block_ms=20'), { as: OPERATOR_KEY });
        note(`${polled.status}`);
        if (polled.json?.id !== undefined) {
          note(`${(await call('POST', work(`/${polled.json.id}/ack`), { as: OPERATOR_KEY })).status}`);
          note(`${(await call('GET', work('/stats'), { as: OPERATOR_KEY })).status}`);
        }
        cycles++;
      }
    };
    const loops = Array.from({ length: 8 }, (_, n) => loop(n));
    for (let kills = 0; kills < 15; kills++) {
      const reached = cycles + 8;
      await until('the loops go on', () => cycles >= reached);
      await kill();
    }
    running = false;
    await Promise.all(loops);
    for (const allowed of ['200', '503', 'unavailable']) outcomes.delete(allowed);
    t.same([...outcomes], [], 'no call ended otherwise');
    t.equal((await call('GET', work('/stats'))).status, 200);
    const { item } = await queue.enqueue({ environmentId: environment.id, sessionId: 'after' });
    t.match((await call('GET', work(`/${item.id}`))).json, { id: item.id, state: 'queued' });
  },
);

t.test(
  'a call whose backend is killed under it is 503 with retry-after, on every route, and works again after',
  async (t) => {
    const { database, killBlocked } = await killableDatabase(t);
    const server = await testServer(t, { database });
    const { call, work, environment } = server;
    const { id, heartbeat } = await holding(server, 'session', 'active');
    const routes: readonly [string, string, CallOptions, number][] = [
      ['GET', work('/poll'), {}, 200],
      ['GET', work('/poll?block_ms=999'), {}, 200],
      ['GET', work('/stats'), {}, 200],
      ['GET', work(), {}, 200],
      ['GET', work(`/${id}`), {}, 200],
      ['POST', work(`/${id}`), { body: { metadata: { a: 'b' } } }, 200],
      ['POST', work(`/${id}/ack`), {}, 200],
      ['POST', work(`/${id}/heartbeat?expected_last_heartbeat=${heartbeat}`), {}, 200],
      ['POST', work(`/${id}/stop`), { body: { force: true } }, 204],
      [
        'POST',
        `/control/v1/environments/${environment.id}/work`,
        { body: { data: { type: 'session', id: 's' } } },
        201,
      ],
    ];
    for (const [method, path, options, status] of routes) {
      const release = await lockItems(t, database);
      const answer = call(method, path, { ...options, as: OPERATOR_KEY });
      await killBlocked();
      const { status: lost, headers, json } = await answer;
      t.equal(lost, 503, `${method} ${path}`);
      t.match(headers.get('retry-after'), /^\d+$/);
      t.match(json, { type: 'error', error: { type: 'overloaded_error', message: /database/ }, request_id: /^req_/ });
      t.notMatch(json.error.message, /terminat|administrator|57P01/i, 'no internal text');
      await release();
      let again = lost;
      // The broken connection may be taken once more before its end arrives.
      await until('it works again', async () => {
        again = (await call(method, path, { ...options, as: OPERATOR_KEY })).status;
        return again !== 503;
      });
      t.equal(again, status, `${method} ${path} again`);
    }
  },
);

t.test('a credential that cannot be looked up is 503, never 401: a worker would end for good', async (t) => {
  const { database, killBlocked } = await killableDatabase(t);
  const { call, work, environmentKey } = await testServer(t, { database });
  const client = await testClient(t);
  await client.query('begin');
  await client.query(`lock table ${database.schema}.credentials in access exclusive mode`);
  const answer = call('GET', work('/poll'), { as: environmentKey });
  await killBlocked();
  t.equal((await answer).status, 503);
  await client.query('rollback');
  await until('it works again', async () => (await call('GET', work('/poll'), { as: environmentKey })).status === 200);
});

t.test('a row that an application holds for too long is 503, and the row is as it was', async (t) => {
  const database = await testDatabase(t, 'postgres', { lockTimeoutMs: 50 });
  const server = await testServer(t, { database });
  const { id } = await holding(server, 'session', 'active');
  const client = await testClient(t);
  await client.query('begin');
  await client.query(`select from ${database.schema}.work_items where id = $1 for update`, [id]);
  for (const path of [`/${id}/ack`, `/${id}/heartbeat?expected_last_heartbeat=NO_HEARTBEAT`, `/${id}/stop`]) {
    t.equal((await server.call('POST', server.work(path))).status, 503, path);
  }
  await client.query('rollback');
  t.match((await server.call('GET', server.work(`/${id}`))).json, { state: 'active' });
});

t.test('a transaction whose backend is killed leaves its place in the pool', async (t) => {
  const { database, kill } = await killableDatabase(t, 1);
  for (let round = 0; round < 3; round++) {
    const broken = database.kysely.transaction().execute(async (transaction) => {
      await sql`select 1`.execute(transaction);
      t.equal(await kill(), 1);
      await until('it broke', () =>
        sql`select 1`.execute(transaction).then(
          () => false,
          () => true,
        ),
      );
      throw new Error('the backend is gone');
    });
    await t.rejects(broken);
  }
  t.same(await database.rows(sql`select 1 as one`), [{ one: 1 }]);
});

t.test('an idle connection that is killed is told as a fault and replaced', async (t) => {
  const faults: string[] = [];
  const database = await testDatabase(t, 'postgres', { onFault: (_error, what) => faults.push(what) });
  const [backend] = await database.rows(sql<{ pid: number }>`select pg_backend_pid() as pid`);
  const killer = new pg.Client({ connectionString: databaseUrl() });
  await killer.connect();
  await killer.query('select pg_terminate_backend($1)', [backend?.pid]);
  await killer.end();
  await until('the fault was told', () => faults.length > 0);
  t.match(faults[0], /connection broke/);
  t.same(await database.rows(sql`select 1 as one`), [{ one: 1 }]);
});

t.test('a broken idle connection is told without the client that broke: it holds secrets', async (t) => {
  const faults: object[] = [];
  const name = `kill_${process.pid}_idle`;
  const url = new URL(databaseUrl());
  url.searchParams.set('application_name', name);
  const onFault = (error: unknown, what: string) => void faults.push({ error, what });
  await testDatabase(t, 'postgres', { connectionString: url.href, onFault });
  const killer = await testClient(t);
  await killer.query('select pg_terminate_backend(pid) from pg_stat_activity where application_name = $1', [name]);
  const told = () => faults.filter((fault) => 'what' in fault && fault.what === 'an idle database connection broke');
  await until('the fault to be told', () => told().length > 0);
  for (const fault of told()) t.notMatch(fault, { error: { client: Object } });
});
