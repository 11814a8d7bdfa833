import { sql } from 'kysely';
import t from 'tap';
import { pruneControl } from '../../src/control/prune.ts';
import type { Database } from '../../src/db/connect.ts';
import { ENGINES, testClient, testDatabase } from '../support/harness.ts';

const RETENTION = { retentionDays: 7 };

const addAnswers = ({ rows, names }: Database, count: number, age: string) =>
  rows(sql`insert into ${names.idempotencyKeys} (caller, key, request_hash, answer, created_at)
    select 'caller', ${age}::text || n, 'hash', '{}', clock_timestamp() - ${age}::interval from generate_series(1, ${count}::integer) n`);

/** The same key, of another caller. */
const addNeighbour = ({ rows, names }: Database, key: string) =>
  rows(
    sql`insert into ${names.idempotencyKeys} (caller, key, request_hash, answer) values ('neighbour', ${key}, 'hash', '{}')`,
  );

const addEntries = ({ rows, names }: Database, count: number, age: string) =>
  rows(sql`insert into ${names.auditLog} (key_id, key_name, action, status, request_id, at)
    select 'key', 'name', ${age}::text, 200, 'req', clock_timestamp() - ${age}::interval from generate_series(1, ${count}::integer) n`);

/** Keys that were revoked or have expired; their neighbours live. */
const addKeys = ({ rows, names }: Database, count: number, age: string) =>
  rows(sql`insert into ${names.credentials} (id, name, key_hash, expires_at, revoked_at)
    select ${age}::text || n, 'key', ${age}::text || n, case when n % 2 = 0 then ended else now() + interval '1 year' end,
      case when n % 2 = 1 then ended end
    from generate_series(1, ${count}::integer) n, lateral (select clock_timestamp() - ${age}::interval as ended) e`);

const addTickets = ({ rows, names }: Database, count: number, age: string) =>
  rows(sql`insert into ${names.streamTickets} (ticket_hash, environment_id, key_hash, expires_at)
    select ${age}::text || n, 'env', 'hash', clock_timestamp() - ${age}::interval from generate_series(1, ${count}::integer) n`);

/** What is left, by its age. */
const left = async ({ rows, names }: Database) => ({
  answers: (await rows(sql<{ key: string }>`select key from ${names.idempotencyKeys} order by 1`)).map(
    (row) => row.key,
  ),
  keys: (await rows(sql<{ id: string }>`select id from ${names.credentials} order by 1`)).map((row) => row.id),
  tickets: (await rows(sql<{ id: string }>`select ticket_hash as id from ${names.streamTickets} order by 1`)).map(
    (row) => row.id,
  ),
  entries: (await rows(sql<{ action: string }>`select action from ${names.auditLog} order by 1`)).map(
    (row) => row.action,
  ),
});

for (const engine of ENGINES) {
  t.test(engine, async (t) => {
    const database = await testDatabase(t, engine);

    t.test('answers older than a day and entries past the retention time go, others stay', async (t) => {
      for (const age of ['23 hours 59 minutes', '24 hours 1 second']) await addAnswers(database, 1, age);
      await addNeighbour(database, '24 hours 1 second1');
      for (const age of ['6 days 23 hours', '7 days 1 second']) await addEntries(database, 1, age);
      await addKeys(database, 2, '6 days 23 hours');
      await addKeys(database, 1, '7 days 1 second');
      for (const age of ['-59 seconds', '1 second']) await addTickets(database, 1, age);
      t.strictSame(await pruneControl(database, RETENTION), {
        answers: 1,
        auditEntries: 1,
        keys: 1,
        tickets: 1,
        more: false,
      });
      t.strictSame(await left(database), {
        answers: ['23 hours 59 minutes1', '24 hours 1 second1'],
        entries: ['6 days 23 hours'],
        keys: ['6 days 23 hours1', '6 days 23 hours2'],
        tickets: ['-59 seconds1'],
      });
    });

    t.test('it goes in bounded steps and says when there is more', async (t) => {
      await addAnswers(database, 501, '2 days');
      await addEntries(database, 501, '8 days');
      await addKeys(database, 501, '8 days');
      await addTickets(database, 501, '8 days');
      t.strictSame(await pruneControl(database, RETENTION), {
        answers: 500,
        auditEntries: 500,
        keys: 500,
        tickets: 500,
        more: true,
      });
      t.strictSame(await pruneControl(database, RETENTION), {
        answers: 1,
        auditEntries: 1,
        keys: 1,
        tickets: 1,
        more: false,
      });
    });
  });
}

t.test('replicas take turns, and what others hold is passed over', async (t) => {
  const database = await testDatabase(t);
  await addAnswers(database, 2, '2 days');
  await addEntries(database, 2, '8 days');
  await addKeys(database, 2, '8 days');
  await addTickets(database, 2, '8 days');
  const client = await testClient(t);
  await client.query('begin');
  await client.query(`select pg_advisory_xact_lock(hashtextextended($1, 0))`, [`${database.schema} prune control`]);
  t.strictSame(
    await pruneControl(database, RETENTION),
    { answers: 0, auditEntries: 0, keys: 0, tickets: 0, more: false },
    'not its turn',
  );
  await client.query('rollback');
  await client.query('begin');
  await client.query(`select from ${database.schema}.idempotency_keys where key = '2 days1' for update`);
  await client.query(`select from ${database.schema}.audit_log order by seq limit 1 for update`);
  await client.query(`select from ${database.schema}.credentials order by id limit 1 for update`);
  await client.query(`select from ${database.schema}.stream_tickets order by ticket_hash limit 1 for update`);
  t.strictSame(
    await pruneControl(database, RETENTION),
    { answers: 1, auditEntries: 1, keys: 1, tickets: 1, more: false },
    'not what is held',
  );
  await client.query('rollback');
  t.strictSame(await pruneControl(database, RETENTION), {
    answers: 1,
    auditEntries: 1,
    keys: 1,
    tickets: 1,
    more: false,
  });
});
