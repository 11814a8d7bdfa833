import { randomBytes } from 'node:crypto';
import { sql } from 'kysely';
import pg from 'pg';
import t, { type Test } from 'tap';
import { MIGRATIONS } from '../migrations/index.ts';
import { type Database, openDatabase } from '../src/db/connect.ts';
import { migrate, schemaStatus } from '../src/db/migrate.ts';
import { databaseUrl, ENGINES, type Engine, lapse, rowOf, testClient, testServer, until } from './support/harness.ts';
import { hold } from './support/interleave.ts';
import { freshDatabase, request, startMain } from './support/process.ts';
import { versionBefore } from './support/version-0001.ts';

const FIRST = { '0001_work_queue': MIGRATIONS['0001_work_queue'] };
const OLD_TABLES = ['environments', 'credentials', 'work_items', 'hand_outs', 'worker_sightings'];

/** A database of migration 0001 alone. */
async function oldDatabase(t: Test, engine: Engine): Promise<Database> {
  const schema = `test_${randomBytes(6).toString('hex')}`;
  const database = await openDatabase({
    ...(engine === 'postgres' ? { connectionString: databaseUrl() } : {}),
    schema,
  });
  t.teardown(async () => {
    await database.rows(sql`drop schema if exists ${sql.id(schema)} cascade`);
    await database.close();
  });
  await migrate(database, FIRST);
  return database;
}

async function addEnvironment({ rows, names }: Database): Promise<string> {
  await rows(sql`insert into ${names.environments} (id, name, description, type, metadata)
    values ('env_old', 'production', 'of before', 'self_hosted', '{"a":"b"}')`);
  return 'env_old';
}

/** Rows in every table, and items in every state, by the statements of that version. */
async function fill(database: Database): Promise<void> {
  const old = versionBefore(database, await addEnvironment(database));
  await old.issueKey('hash of a key');
  await database.rows(sql`update ${database.names.credentials} set revoked_at = clock_timestamp()`);
  await old.issueKey('hash of another key');
  await old.recordSighting();
  await old.enqueue('superseded');
  const first = await old.poll('hash 1');
  await lapse(database, first.id);
  await old.poll('hash 2');
  for (const [session, steps] of Object.entries({ starting: 1, active: 2, stopping: 3, stopped: 4 })) {
    await old.enqueue(session);
    const { id } = await old.poll(`hash of ${session}`);
    await old.ack(id);
    if (steps > 1) await old.heartbeat(id, 'NO_HEARTBEAT');
    if (steps > 2) await old.stop(id, steps > 3);
  }
  await old.enqueue('queued');
  await old.enqueue('of the process lane', 'model_turn');
}

/** Every row of the first version's tables, by the columns that it had. */
async function stored(database: Database, columns: Map<string, string[]>): Promise<Record<string, string[]>> {
  const found: Record<string, string[]> = {};
  for (const table of OLD_TABLES) {
    const names = sql.join((columns.get(table) ?? []).map((column) => sql.id(column)));
    const rows = await database.rows(
      sql<{
        row: string;
      }>`select to_jsonb(x)::text as row from (select ${names} from ${sql.id(database.schema, table)}) x`,
    );
    found[table] = rows.map(({ row }) => row).sort();
  }
  return found;
}

async function columnsOf({ rows, schema }: Database): Promise<Map<string, string[]>> {
  const found = await rows(sql<{ table: string; column: string }>`
    select table_name::text as table, column_name::text as column from information_schema.columns
    where table_schema = ${schema} order by 1, 2`);
  const tables = new Map<string, string[]>();
  for (const { table, column } of found) tables.set(table, [...(tables.get(table) ?? []), column]);
  return tables;
}

for (const engine of ENGINES) {
  t.test(`${engine}: a database of the first migration migrates with its data unchanged`, async (t) => {
    const database = await oldDatabase(t, engine);
    t.equal(await schemaStatus(database), 'older');
    await fill(database);
    const columns = await columnsOf(database);
    const before = await stored(database, columns);
    for (const table of OLD_TABLES) t.ok((before[table]?.length ?? 0) > 0, `rows in ${table}`);
    await migrate(database);
    t.equal(await schemaStatus(database), 'current');
    t.strictSame(await stored(database, columns), before);
    await migrate(database);
    t.strictSame(await stored(database, columns), before, 'once more changes nothing');

    const server = await testServer(t, { database });
    const seen = await server.queue.list('env_old', { limit: 100 });
    t.strictSame(seen.items.map(({ sessionId, state }) => `${sessionId}: ${state}`).sort(), [
      ...['active: active', 'queued: queued', 'starting: starting', 'stopped: stopped', 'stopping: stopping'],
      'superseded: queued',
    ]);
    t.match(await server.queue.poll({ environmentId: 'env_old' }), { item: { sessionId: 'queued' } });
    const active = seen.items.find(({ state }) => state === 'active');
    const beat = { environmentId: 'env_old', id: active?.id ?? '', isRetry: false };
    t.match(await server.queue.heartbeat([{ ...beat, expectedLastHeartbeat: active?.lastHeartbeat ?? '' }]), [
      { leaseExtended: true },
    ]);
  });

  t.test(`${engine}: a replica of the version before goes on serving what newer ones migrated`, async (t) => {
    const database = await oldDatabase(t, engine);
    await migrate(database);
    const environmentId = await addEnvironment(database);
    const old = versionBefore(database, environmentId);
    t.type((await old.issueKey('hash')).id, 'string');
    t.match(await old.findKey('hash'), [{ environmentId }]);
    await old.recordSighting();
    const first = await old.enqueue('session');
    t.equal((await old.enqueue('session')).id, first.id, 'covered');
    t.equal((await old.poll('hash 1')).id, first.id);
    t.equal((await old.putBack(first.id, 'hash 1')).id, first.id);
    t.equal((await old.poll('hash 2')).id, first.id);
    t.equal((await old.poll('hash 3')).id, null);
    await lapse(database, first.id);
    const { id } = await old.poll('hash 4');
    t.not(id, first.id);
    t.match(await old.ack(id), { id, state: 'starting' });
    const beaten = await old.heartbeat(id, 'NO_HEARTBEAT');
    t.match(beaten, { state: 'active', leaseExtended: true });
    t.match(await old.heartbeat(id, beaten.lastHeartbeat), { decision: 'beat', leaseExtended: true });
    await lapse(database, id, 10);
    t.match(await old.sweep(), { requeued: 1 });
    t.match(await rowOf(database, id), { state: 'queued', lapsed_state: 'active' });
    const again = await old.poll('hash 5');
    await old.ack(again.id);
    await old.heartbeat(again.id, 'NO_HEARTBEAT');
    t.match(await old.stop(again.id, false), { nextState: 'stopping' });
    await lapse(database, again.id);
    t.match(await old.sweep(), { finalised: 1 });
    await database.rows(sql`update ${database.names.workItems} set stopped_at = clock_timestamp() - interval '8 days'`);
    t.match(await old.sweep(), { pruned: 1 });
    t.strictSame(await database.rows(sql`select work_id from ${database.names.handOuts}`), [], 'with its old ids');
  });

  t.test(`${engine}: what a later version has migrated is newer, and is served`, async (t) => {
    const server = await testServer(t, { engine });
    const { database } = server;
    const ready = async () => (await server.call('GET', '/readyz', { as: null })).json;
    t.match(await ready(), { status: 'ready', schema: 'current' });
    await database.rows(
      sql`insert into ${sql.id(database.schema, 'migrations')} (name, timestamp) values ('9999_of_later', '2030')`,
    );
    t.match(await ready(), { status: 'ready', schema: 'newer' });
    await migrate(database);
    const id = await server.enqueue('session');
    t.equal((await server.call('GET', server.work('/poll'))).json?.id, id);
    await database.rows(sql`delete from ${sql.id(database.schema, 'migrations')} where name = '0002_control_plane'`);
    t.equal((await server.call('GET', '/readyz', { as: null })).status, 503, 'what lacks a migration of ours is older');
  });
}

t.test(
  'two servers that start at once on a database of the first migration both come up, its data unchanged',
  async (t) => {
    const connectionString = await freshDatabase(t);
    const database = await openDatabase({ connectionString });
    t.teardown(() => database.close());
    await migrate(database, FIRST);
    await fill(database);
    const columns = await columnsOf(database);
    const before = await stored(database, columns);
    const client = new pg.Client({ connectionString });
    await client.connect();
    t.teardown(() => client.end());
    // Kysely's own migration lock, held until both have reached it.
    await client.query('begin');
    await client.query('select pg_advisory_xact_lock(3853314791062309107)');
    const key = 'operator-key-of-this-process';
    const variables = { DATABASE_URL: connectionString, LEASEHOLD_API_KEY: key, SWEEP_INTERVAL_MS: '600000' };
    const starts = Promise.all([startMain(t, variables), startMain(t, variables)]);
    const waiting = `select count(*)::int as n from pg_locks where locktype = 'advisory' and not granted
    and database = (select oid from pg_database where datname = current_database())`;
    await until('both to wait for their turn', async () => (await client.query(waiting)).rows[0].n === 2);
    await client.query('commit');
    for (const { url } of await starts) {
      t.match(await request(`${url}/readyz`, null), { status: 200, json: { status: 'ready', schema: 'current' } });
      t.match(await request(`${url}/v1/environments/env_old`, key), { json: { name: 'production' } });
    }
    t.strictSame(await stored(database, columns), before);
  },
);

t.test('a migration that loses a deadlock to a transaction of a replica that serves is tried again', async (t) => {
  const database = await oldDatabase(t, 'postgres');
  const { workItems, environments } = database.names;
  const serving = await hold(t, database, async ({ rows }, transaction) => {
    await rows(sql`select from ${workItems}`);
    return transaction;
  });
  const migrating = migrate(database);
  await serving.untilBlocked();
  // Asked for second, so that the migration is the one that finds the deadlock.
  await database.rows(sql`select from ${environments}`, serving.answer);
  await serving.commit();
  await migrating;
  t.equal(await schemaStatus(database), 'current');
});

t.test('a migration that fails leaves the database as it was', async (t) => {
  const database = await oldDatabase(t, 'postgres');
  await fill(database);
  const columns = await columnsOf(database);
  const before = await stored(database, columns);
  const client = await testClient(t);
  await client.query(`create table ${database.schema}.refusals ()`); // in the way of its last statement
  await t.rejects(migrate(database));
  t.equal(await schemaStatus(database), 'older');
  t.strictSame(
    [...(await columnsOf(database))].filter(([table]) => table !== 'refusals'),
    [...columns],
  );
  await client.query(`drop table ${database.schema}.refusals`);
  await migrate(database);
  t.equal(await schemaStatus(database), 'current');
  t.strictSame(await stored(database, columns), before);
});
