import { sql } from 'kysely';
import pg from 'pg';
import t from 'tap';
import { issueKey } from '../../src/control/keys.ts';
import { openDatabase } from '../../src/db/connect.ts';
import { migrate } from '../../src/db/migrate.ts';
import { testServer, until } from '../support/harness.ts';
import { freshDatabase } from '../support/process.ts';

const KILLS = 200;
const WORKERS = 8;

t.test('backends killed 200 times under load: what fails is 503, and the pool is as before in the end', async (t) => {
  const url = await freshDatabase(t); // whose connections are all ours
  const database = await openDatabase({ connectionString: url });
  await migrate(database);
  t.teardown(() => database.close());
  const server = await testServer(t, { database, background: true });
  const { call, work, environment } = server;
  const { key } = await issueKey(database, { environmentId: environment.id, name: 'workers' });
  const killer = new pg.Client({ connectionString: url });
  await killer.connect();
  t.teardown(() => killer.end());
  const backends = async (): Promise<number[]> => {
    const { rows } = await killer.query(
      `select pid from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'`,
    );
    return rows.map(({ pid }) => pid);
  };

  let isOver = false;
  let [sessions, finished, failed] = [0, 0, 0];
  const statuses = new Set<number>();
  const ask = async (method: string, path: string, body?: unknown) => {
    const answer = await call(method, path, { as: key, ...(body === undefined ? {} : { body }) });
    statuses.add(answer.status);
    if (answer.status === 503) failed++;
    return answer;
  };
  const loop = async () => {
    while (!isOver) {
      await server.enqueue(`${sessions++}`).catch(() => {});
      const { status, json } = await ask('GET', work('/poll'));
      if (status !== 200 || json === null) continue;
      await ask('POST', work(`/${json.id}/ack`));
      await ask('POST', work(`/${json.id}/heartbeat?expected_last_heartbeat=NO_HEARTBEAT`));
      if ((await ask('POST', work(`/${json.id}/stop`), { force: true })).status === 204) finished++;
    }
  };
  const load = Promise.all(Array.from({ length: WORKERS }, loop));
  for (let kills = 0; kills < KILLS; ) {
    const pids = await backends();
    const pid = pids[Math.floor(Math.random() * pids.length)];
    if (pid === undefined) continue;
    await killer.query('select pg_terminate_backend($1)', [pid]);
    kills++;
    const before = finished;
    await until('work to go on', () => finished > before);
  }
  isOver = true;
  await load;
  t.ok(failed > 0, `${failed} calls failed, ${finished} items were finished`);
  const expected = [200, 204, 404, 409, 412, 503]; // an answer that was lost with its backend may have been a commit
  t.strictSame(
    [...statuses].filter((status) => !expected.includes(status)),
    [],
  );
  // One that was killed goes on for a moment.
  await until('the pools and the listener, no more', async () => (await backends()).length <= 16 + 4 + 1);
  const [row] = await database.rows(sql<{ one: number }>`select 1 as one`);
  t.equal(row?.one, 1);
});
