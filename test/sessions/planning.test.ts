import { sql } from 'kysely';
import t, { type Test } from 'tap';
import { createEnvironment } from '../../src/control/environments.ts';
import { type Database, within } from '../../src/db/connect.ts';
import { appendEvents } from '../../src/sessions/append.ts';
import { createSession } from '../../src/sessions/create.ts';
import { listSessions } from '../../src/sessions/read.ts';
import { listEvents, readHeads, tailEvents } from '../../src/sessions/read-events.ts';
import { rearmSessions } from '../../src/sessions/rearm.ts';
import { testDatabase } from '../support/harness.ts';

const SESSIONS = 30;
const EVENTS = 40;
const CALL = { type: 'agent.tool_use', name: 'bash', input: {} } as const;

/** Rows read of the tables by this transaction, and whole readings of them. */
async function read(database: Database): Promise<{ rows: number; scans: number }> {
  const [row] = await database.rows(sql<{ rows: number; scans: number }>`
    select sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0))::integer as rows, sum(coalesce(seq_scan, 0))::integer as scans
    from pg_stat_xact_user_tables where schemaname = ${database.schema} and relname in ('sessions', 'session_events', 'work_items')`);
  return row ?? { rows: 0, scans: 0 };
}

/** What a call reads, after it has been planned for good on tables that were nearly empty. In one transaction no statistics are gathered. */
async function reads(
  t: Test,
  what: string,
  rowsMax: number,
  database: Database,
  call: (n: number) => Promise<unknown>,
) {
  for (let n = 0; n < 10; n++) await call(n);
  const before = await read(database);
  await call(10);
  const after = await read(database);
  t.equal(after.scans, before.scans, `${what}: no table is read whole`);
  t.ok(after.rows - before.rows <= rowsMax, `${what}: ${after.rows - before.rows} rows read`);
}

t.test('what sessions ask finds its rows by index, also where it was planned on empty tables', async (t) => {
  const plain = await testDatabase(t, 'postgres', { poolConnectionsMax: 1 });
  const { id: environmentId } = await createEnvironment(plain, { name: 'indexed', type: 'self_hosted' });
  await plain.transaction(async (transaction) => {
    const database = within(plain, transaction);
    const ids: string[] = [];
    for (let n = 0; n < SESSIONS; n++) ids.push((await createSession(database, { environmentId })).session.id);
    const idOf = (n: number) => ids[n] ?? '';
    const results = await Promise.all(
      Array.from({ length: 11 }, async (_, n) => {
        const { events } = await appendEvents(database, idOf(n), [CALL], 'agent');
        return { type: 'user.tool_result', tool_use_id: JSON.parse(events[0] ?? '').id } as const;
      }),
    );
    const message = { type: 'agent.message', content: [] } as const;
    for (const id of ids) await appendEvents(database, id, Array(EVENTS).fill(message), 'agent');

    await reads(t, 'a call', 10, database, (n) => appendEvents(database, idOf(n + 11), [CALL], 'agent'));
    await reads(t, 'a result', 6, database, (n) => appendEvents(database, idOf(n), results.slice(n, n + 1), 'worker'));
    await reads(t, 'a repeat', 10, database, (n) => appendEvents(database, idOf(n), results.slice(n, n + 1), 'worker'));
    await reads(t, 'a tail', 10, database, () => tailEvents(database, idOf(0), EVENTS));
    await reads(t, 'a page', 20, database, () => listEvents(database, idOf(0), { limit: 5 }));
    await reads(t, 'the last page', 20, database, () => listEvents(database, idOf(0), { limit: 5, order: 'desc' }));
    await reads(t, 'a head', 4, database, () => readHeads(database, [idOf(0)]));
    await reads(t, 'those of an environment', 8, database, () => listSessions(database, { limit: 5, environmentId }));
  });
});

t.test('lists and the look in the background read what they are about, however many sessions there are', async (t) => {
  const plain = await testDatabase(t, 'postgres', { poolConnectionsMax: 1 });
  const { id: environmentId } = await createEnvironment(plain, { name: 'many', type: 'self_hosted' });
  const { sessions, workItems } = plain.names;
  await plain.rows(sql`
    insert into ${sessions} (id, environment_id, agent, status, last_event_at, needs_worker, is_held)
    select 'sesn_' || n, ${environmentId}, '{}', case n % 3 when 0 then 'running' else 'idle' end, clock_timestamp(), n % 100 = 0, false
    from generate_series(1, 5000) n`);
  await plain.rows(sql`
    insert into ${workItems} (id, environment_id, session_id, kind, lane, state)
    select 'work_' || n, ${environmentId}, 'sesn_' || n, 'tool_exec', 'wire', case when n % 10 = 0 then 'active' else 'stopped' end
    from generate_series(1, 5000) n where n % 100 = 0 or n % 10 <> 0`);
  await plain.rows(sql`analyze ${sessions}`);
  await plain.rows(sql`analyze ${workItems}`);
  await plain.transaction(async (transaction) => {
    const database = within(plain, transaction);
    await rearmSessions(database);
    await reads(t, 'the newest sessions', 8, database, () => listSessions(database, { limit: 5 }));
    await reads(t, 'those of an environment', 8, database, () => listSessions(database, { limit: 5, environmentId }));
    await reads(t, 'a look at those that no worker serves', 200, database, () => rearmSessions(database));
  });
});
