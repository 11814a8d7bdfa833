import { sql } from 'kysely';
import t, { type Test } from 'tap';
import { createEnvironment } from '../../src/control/environments.ts';
import type { Database } from '../../src/db/connect.ts';
import { createSession } from '../../src/sessions/create.ts';
import { archiveSession } from '../../src/sessions/end.ts';
import { lockSession } from '../../src/sessions/lock.ts';
import { pruneSessions } from '../../src/sessions/prune.ts';
import { ENGINES, testDatabase } from '../support/harness.ts';
import { hold } from '../support/interleave.ts';
import { sessionRow } from '../support/sessions.ts';

const SETTINGS = { retentionDays: 7 };
let names = 0;

async function place(database: Database, retentionDays: number | null = null): Promise<string> {
  const { id } = await createEnvironment(database, { name: `kept ${names++}`, type: 'self_hosted' });
  await database.rows(
    sql`update ${database.names.environments} set retention_days = ${retentionDays}::integer where id = ${id}`,
  );
  return id;
}

/** A session that was archived so long ago, with its event and more. */
async function archived(database: Database, environmentId: string, days: number, events = 0): Promise<string> {
  const { sessions, sessionEvents } = database.names;
  const { session } = await createSession(database, { environmentId });
  await archiveSession(database, session.id);
  await database.rows(sql`
    insert into ${sessionEvents} (session_id, seq, id, type, processed_at, bytes, event)
    select ${session.id}, n + 1, ${session.id} || n, 'user.message', clock_timestamp(), 2, '{}' from generate_series(1, ${events}::integer) n`);
  await database.rows(sql`
    update ${sessions} set archived_at = clock_timestamp() - ${days}::float8 * interval '1 day', created_at = clock_timestamp() - interval '90 days'
    where id = ${session.id}`);
  return session.id;
}

async function pruneAll(t: Test, database: Database): Promise<number> {
  let pruned = 0;
  for (let pass = 0; pass < 20; pass++) {
    const done = await pruneSessions(database, SETTINGS);
    pruned += done.pruned;
    if (!done.more) return pruned;
  }
  t.fail('it never ends');
  return pruned;
}

const eventsOf = async ({ names, rows }: Database, id: string) =>
  (await rows(sql`select from ${names.sessionEvents} where session_id = ${id}`)).length;

for (const engine of ENGINES) {
  t.test(
    `${engine}: what was archived for as long as its environment says is removed with its events, and nothing else`,
    async (t) => {
      const database = await testDatabase(t, engine);
      const [usual, short, long] = [await place(database), await place(database, 2), await place(database, 30)];
      const gone = [
        await archived(database, usual, 7.1, 3),
        await archived(database, short, 2.1),
        await archived(database, long, 30.1),
      ];
      const kept = [
        await archived(database, usual, 6.9, 3),
        await archived(database, short, 1.9),
        await archived(database, long, 29.9),
        (await createSession(database, { environmentId: usual })).session.id,
      ];
      const { sessions } = database.names;
      await database.rows(
        sql`update ${sessions} set created_at = '2000-01-01', updated_at = '2000-01-01', last_event_at = '2000-01-01' where id = ${kept[3]}`,
      );
      const before = await Promise.all(kept.map((id) => sessionRow(database, id)));
      t.equal(await pruneAll(t, database), gone.length);
      for (const id of gone) {
        t.equal(await sessionRow(database, id), undefined);
        t.equal(await eventsOf(database, id), 0);
      }
      t.strictSame(await Promise.all(kept.map((id) => sessionRow(database, id))), before);
      t.equal(await eventsOf(database, kept[0] ?? ''), 4);
      t.strictSame(await pruneSessions(database, SETTINGS), { pruned: 0, more: false });
    },
  );
}

t.test('postgres: events without end go in steps, and their session after the last of them', async (t) => {
  const database = await testDatabase(t);
  const id = await archived(database, await place(database), 8, 4_500);
  const left: number[] = [];
  const sessionIsLeft: boolean[] = [];
  for (let more = true; more; ) {
    ({ more } = await pruneSessions(database, SETTINGS));
    left.push(await eventsOf(database, id));
    sessionIsLeft.push((await sessionRow(database, id)) !== undefined);
  }
  t.strictSame(left, [2_501, 501, 0, 0, 0]);
  t.strictSame(sessionIsLeft, [true, true, true, false, false]);
});

t.test('postgres: a pass is bounded in sessions, too, oldest first', async (t) => {
  const database = await testDatabase(t);
  const environmentId = await place(database);
  const { sessions, sessionEvents } = database.names;
  const oldest = await archived(database, environmentId, 100);
  const younger = await archived(database, environmentId, 99);
  await database.rows(sql`delete from ${sessionEvents}`);
  await database.rows(sql`
    insert into ${sessions} (id, environment_id, agent, status, archived_at)
    select 'sesn_' || n, environment_id, '{}', 'terminated', clock_timestamp() - interval '8 days'
    from ${sessions}, generate_series(1, 60) n where id = ${oldest}`);
  t.strictSame(await pruneSessions(database, SETTINGS), { pruned: 50, more: true });
  t.equal(await sessionRow(database, oldest), undefined);
  t.equal(await sessionRow(database, younger), undefined);
  t.strictSame(await pruneSessions(database, SETTINGS), { pruned: 12, more: true });
});

t.test('postgres: what somebody holds is passed over, and replicas take turns', async (t) => {
  const database = await testDatabase(t);
  const environmentId = await place(database);
  const [locked, free] = [await archived(database, environmentId, 8), await archived(database, environmentId, 8)];
  const held = await hold(t, database, (bound) => lockSession(bound, locked));
  t.equal(await pruneAll(t, database), 1);
  t.ok(await sessionRow(database, locked));
  t.equal(await sessionRow(database, free), undefined);
  await held.rollback();
  const turn = await hold(t, database, (bound) => pruneSessions(bound, SETTINGS));
  t.match(turn.answer, { more: true });
  await turn.rollback();
  const other = await hold(t, database, ({ rows, schema }) =>
    rows(sql`select pg_advisory_xact_lock(hashtextextended(${`${schema} prune sessions`}, 0))`),
  );
  t.strictSame(await pruneSessions(database, SETTINGS), { pruned: 0, more: false }, "another's turn");
  await other.rollback();
  t.equal(await pruneAll(t, database), 1);
});
