import t, { type Test } from 'tap';
import { createCallers } from '../../src/control/credentials.ts';
import { createQueue, type Queue } from '../../src/create-queue.ts';
import { type Database, openDatabase } from '../../src/db/connect.ts';
import { buildApp } from '../../src/http/app.ts';
import {
  caller,
  databaseUrl,
  ENGINES,
  type Engine,
  OPERATOR_KEY,
  rowOf,
  testClient,
  testDatabase,
  testServer,
  until,
  untilBlocked,
} from '../support/harness.ts';
import { freePort } from '../support/postgres.ts';
import { callRoute, checkRefusal, ROUTES } from '../support/wire.ts';

/** An app without the harness's environment: what it is given need not work. */
async function bareApp(t: Test, database: Database, stub: Partial<Queue> = {}) {
  const queue = createQueue({ database });
  const callers = createCallers({ database, operatorKey: OPERATOR_KEY });
  const app = buildApp({ queue: { ...queue, ...stub }, database, callers, publicUrl: () => '' });
  const url = await app.listen({ host: '127.0.0.1', port: 0 });
  t.teardown(async () => {
    app.server.closeAllConnections();
    await app.close();
    await callers.close();
    await queue.close();
  });
  return { call: caller(url) };
}

/** A database that nobody migrated, and a way to lose it. PGlite starts slowly: one serves both. */
async function emptyDatabase(t: Test, engine: Engine): Promise<{ empty: Database; lose(): Promise<Database> }> {
  const empty = await openDatabase(engine === 'pglite' ? {} : { connectionString: databaseUrl(), schema: 'not_there' });
  t.teardown(() => empty.close());
  return {
    empty,
    async lose() {
      if (engine === 'pglite') {
        await empty.close();
        return empty;
      }
      const refused = `postgres://nobody@127.0.0.1:${await freePort()}/nowhere`;
      const database = await openDatabase({ connectionString: refused });
      t.teardown(() => database.close());
      return database;
    },
  };
}

const PLACE = { environmentId: 'env_x', workId: 'work_x' };
const SECRET = 'x'.repeat(43);
const CREDENTIALS = {
  'the operator key': OPERATOR_KEY,
  'an API key': `lhk_${SECRET}`,
  'an environment key': `lhe_${SECRET}`,
  'a sessions token': `lhs_work_x.${SECRET}`,
};

for (const engine of ENGINES) {
  t.test(`${engine}: a lost database is 503 on every route and for every credential, never 4xx`, async (t) => {
    const { empty, lose } = await emptyDatabase(t, engine);
    const unmigrated = await bareApp(t, empty);
    checkRefusal(t, await unmigrated.call('GET', '/readyz', { as: null }), 503, 'readyz without our tables');

    const { call } = await bareApp(t, await lose());
    for (const [kind, as] of Object.entries(CREDENTIALS)) {
      for (const route of ROUTES) {
        checkRefusal(t, await callRoute({ call }, route, PLACE, as), 503, `${route.name}, ${kind}`);
      }
    }
    checkRefusal(
      t,
      await call('GET', '/v1/environments/env_x/work/poll?block_ms=999', { as: OPERATOR_KEY }),
      503,
      'blocking',
    );
    checkRefusal(t, await call('GET', '/readyz', { as: null }), 503, 'readyz');
    t.equal((await call('GET', '/healthz', { as: null })).status, 200, 'the process itself is well');
  });
}

t.test('a backend that is killed under a call is 503, and the server goes on', async (t) => {
  const { call, work, enqueue, database } = await testServer(t);
  const id = await enqueue('session');
  const before = await rowOf(database, id);
  const client = await testClient(t);
  await client.query('begin');
  await client.query(`select from ${database.schema}.work_items where id = $1 for update`, [id]);
  const acking = call('POST', work(`/${id}/ack`));
  // Within a transaction pg_stat_activity stays as it was first seen.
  const watcher = await testClient(t);
  await untilBlocked(watcher, database.schema);
  await watcher.query(
    `select pg_terminate_backend(pid) from pg_stat_activity
      where query like $1 and pid <> pg_backend_pid() and application_name = 'leasehold'`,
    [`%${database.schema}%`],
  );
  checkRefusal(t, await acking, 503, 'the call under way');
  await client.query('rollback');
  // By the test's own connection: the pool may not know yet which of its connections are gone.
  const { rows } = await client.query(
    `select to_jsonb(w)::text as row from ${database.schema}.work_items w where w.id = $1`,
    [id],
  );
  t.strictSame(JSON.parse(rows[0].row), before, 'nothing was written');
  await until('the pool serves again', async () => {
    const answer = await call('POST', work(`/${id}/ack`));
    if (answer.status !== 200) checkRefusal(t, answer, 503, 'on the way back');
    return answer.status === 200;
  });
});

t.test('a fault of the server is 500 and shows nothing of the inside', async (t) => {
  const database = await testDatabase(t);
  const thrown: readonly unknown[] = [
    new Error('inside: relation "work_items" at /srv/app.ts'),
    Object.assign(new Error('inside'), { statusCode: 400, code: '23505', detail: 'inside' }),
    Object.assign(new Error('inside'), { statusCode: 404, headers: { 'x-inside': 'inside' } }),
    new TypeError('inside'),
    'inside',
    undefined,
    null,
  ];
  let fault: unknown;
  const stub = {
    stats: async () => {
      throw fault;
    },
    // An answer that the schema cannot carry is a fault too, not half an answer.
    retrieve: async () => ({ id: 'inside' }) as never,
  };
  const { call } = await bareApp(t, database, stub);
  for (fault of thrown) {
    const answer = await call('GET', '/v1/environments/env_x/work/stats', { as: OPERATOR_KEY });
    checkRefusal(t, answer, 500, String(fault));
    t.notMatch(answer.text + JSON.stringify([...answer.headers]), /inside/, 'no internal text');
  }
  const answer = await call('GET', '/v1/environments/env_x/work/work_x', { as: OPERATOR_KEY });
  checkRefusal(t, answer, 500, 'a broken answer');
  t.notMatch(answer.text, /inside|required|schema/i, 'no internal text');
});
