import pg from 'pg';
import t, { type Test } from 'tap';
import { rowCounts } from './support/changes.ts';
import {
  databaseUrl,
  OPERATOR_KEY,
  type Server,
  testClient,
  testDatabase,
  testServer,
  until,
} from './support/harness.ts';
import { freshDatabase, request, startMain } from './support/process.ts';
import { checkRefusal } from './support/wire.ts';

/** A server whose backends can be told from those of other tests by their application name. */
async function killableServer(t: Test) {
  const name = `kill_changes_${process.pid}_${Math.random().toString(36).slice(2)}`;
  const url = new URL(databaseUrl());
  url.searchParams.set('application_name', name);
  const { schema } = await testDatabase(t);
  const database = await testDatabase(t, 'postgres', { connectionString: url.href, schema });
  const server = await testServer(t, { database });
  // Two: within a transaction pg_stat_activity stays as it was first read.
  const [client, killer] = [await testClient(t), await testClient(t)];
  const killBlocked = () =>
    until('a blocked backend was killed', async () => {
      const killed = await killer.query(
        `select pg_terminate_backend(pid) from pg_stat_activity where application_name = $1 and wait_event_type = 'Lock'`,
        [name],
      );
      return (killed.rowCount ?? 0) > 0;
    });
  return { server, client, killBlocked };
}

const enqueue = ({ call, environment }: Server, headers: Record<string, string>) =>
  call('POST', `/control/v1/environments/${environment.id}/work`, {
    as: OPERATOR_KEY,
    headers,
    body: { data: { type: 'session', id: 'session' } },
  });

/** What a change waits for, and where it stands then. */
const STEPS = [
  ['before the act', 'idempotency_keys'],
  ['in the act', 'work_items'],
  ['between the act and its record', 'audit_log'],
] as const;

for (const [where, table] of STEPS) {
  t.test(`a backend that is killed ${where} leaves nothing, and the repeat acts`, async (t) => {
    const { server, client, killBlocked } = await killableServer(t);
    const before = await rowCounts(server.database);
    await client.query('begin');
    await client.query(`lock table ${server.database.schema}.${table} in access exclusive mode`);
    const answer = enqueue(server, { 'idempotency-key': 'key' });
    await killBlocked();
    checkRefusal(t, await answer, 503, where);
    await client.query('rollback');
    t.strictSame(await rowCounts(server.database), before, 'nothing was written');
    await until('it works again', async () => (await enqueue(server, { 'idempotency-key': 'key' })).status === 201);
    const counts = await rowCounts(server.database);
    t.match(counts, { workItems: 1, auditLog: 1, idempotencyKeys: 1 }, 'once');
  });
}

for (const headers of [{ 'idempotency-key': 'key' }, {}]) {
  t.test(`a backend that is killed in the commit leaves nothing, ${Object.keys(headers)[0] ?? 'no key'}`, async (t) => {
    const { server, client, killBlocked } = await killableServer(t);
    const { schema } = server.database;
    const before = await rowCounts(server.database);
    await client.query('select pg_advisory_lock(hashtextextended($1, 0))', [schema]);
    await client.query(`create function ${schema}.wait() returns trigger language plpgsql as $$
      begin perform pg_advisory_xact_lock(hashtextextended('${schema}', 0)); return null; end $$`);
    await client.query(`create constraint trigger wait after insert on ${schema}.audit_log
      deferrable initially deferred for each row execute function ${schema}.wait()`);
    const answer = enqueue(server, headers);
    await killBlocked();
    checkRefusal(t, await answer, 503, 'in the commit');
    await until('the pool has noticed', () => rowCounts(server.database).then(Boolean, () => false));
    t.strictSame(await rowCounts(server.database), before, 'neither the act nor its entry');
    await client.query('select pg_advisory_unlock_all()');
    await until('it works again', async () => (await enqueue(server, headers)).status === 201);
    t.match(await rowCounts(server.database), { workItems: 1, auditLog: 1 }, 'once');
  });
}

async function clientOf(t: Test, url: string): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: url });
  client.on('error', () => {});
  await client.connect();
  t.teardown(() => client.end());
  return client;
}

t.test('a process that is killed between the act and its record leaves nothing, and another one acts', async (t) => {
  const url = await freshDatabase(t);
  const variables = { DATABASE_URL: url, LEASEHOLD_API_KEY: OPERATOR_KEY };
  const first = await startMain(t, variables);
  const { json } = await request(`${first.url}/v1/environments`, OPERATOR_KEY, { name: 'killed' });
  const [client, watcher] = [await clientOf(t, url), await clientOf(t, url)];
  const ask = (to: string) =>
    fetch(`${to}/control/v1/environments/${json.id}/work`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'x-api-key': OPERATOR_KEY, 'idempotency-key': 'key' },
      body: JSON.stringify({ data: { type: 'session', id: 'session' } }),
    });
  const count = async (table: string) =>
    (await client.query(`select count(*)::integer as n from leasehold.${table}`)).rows[0].n;
  const entries = await count('audit_log');

  await client.query('begin');
  await client.query('lock table leasehold.audit_log in access exclusive mode');
  const lost = t.rejects(ask(first.url), 'no answer came');
  await until('it waits with its act done', async () => {
    const blocked = `select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`;
    return ((await watcher.query(blocked)).rowCount ?? 0) > 0;
  });
  first.child.kill('SIGKILL');
  await lost;
  await client.query('rollback');

  const second = await startMain(t, variables);
  // The backend of the dead finds out when it next hears nothing from it: until then the key is in use.
  let answer = await ask(second.url);
  await until('the key is free', async () => {
    if (answer.status === 409) answer = await ask(second.url);
    return answer.status !== 409;
  });
  t.equal(answer.status, 201);
  t.equal(await count('work_items'), 1);
  t.equal(await count('idempotency_keys'), 1);
  t.equal(await count('audit_log'), entries + 1);
});
