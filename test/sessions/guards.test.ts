import { sql } from 'kysely';
import t from 'tap';
import { archiveEnvironment, deleteEnvironment } from '../../src/control/change-environment.ts';
import { createEnvironment } from '../../src/control/environments.ts';
import type { Database } from '../../src/db/connect.ts';
import { within } from '../../src/db/connect.ts';
import { createSession } from '../../src/sessions/create.ts';
import type { LockedSession } from '../../src/sessions/lock.ts';
import { lockSession } from '../../src/sessions/lock.ts';
import { statusToStore, storeEvents } from '../../src/sessions/store.ts';
import { testDatabase, testServer } from '../support/harness.ts';
import { hold, replicas } from '../support/interleave.ts';
import { everything, relayPlace, TOOL } from '../support/sessions.ts';

const place = async (database: Database, name: string) =>
  (await createEnvironment(database, { name, type: 'self_hosted' })).id;
const caught = (promise: Promise<unknown>) => promise.catch((error: unknown) => error);

t.test('postgres: what was read without its lock is stored only as long as nothing came after it', async (t) => {
  const server = await testServer(t);
  const { database } = server;
  const relay = await relayPlace(server);
  const id = await relay.session();
  const read = (await database.transaction((transaction) =>
    lockSession(within(database, transaction), id),
  )) as LockedSession;
  await relay.append(id, TOOL);
  const before = await everything(database);
  const event = statusToStore({ type: 'session.status_running' }, read.now);
  await t.rejects(storeEvents(database, read, [event], read, read), {
    message: /was changed by somebody who had not locked it/,
  });
  t.equal(await everything(database), before);
});

t.test('postgres: the events of an environment that goes are removed in steps, and no others', async (t) => {
  const database = await testDatabase(t);
  const { sessionEvents, sessions } = database.names;
  const [going, staying] = [await place(database, 'going'), await place(database, 'staying')];
  for (const [environmentId, count] of [
    [going, 5_001],
    [going, 2],
    [staying, 3],
  ] as const) {
    const { session } = await createSession(database, { environmentId });
    await database.rows(sql`
      insert into ${sessionEvents} (session_id, seq, id, type, processed_at, bytes, event)
      select ${session.id}, n, ${session.id} || n, 'user.message', clock_timestamp(), 2, '{}' from generate_series(1, ${count}::integer) n`);
  }
  await database.rows(sql`
    insert into ${sessions} (id, environment_id, agent, status)
    select 'sesn_' || n, ${going}, '{}', 'idle' from generate_series(1, 999) n`);
  const steps: Record<string, number[]> = { told: [], old: [] };
  const rows: typeof database.rows = async (statement, transaction) => {
    const answer = await database.rows(statement, transaction);
    const [, step = ''] = /with (told|old) as/.exec(statement.compile(database.kysely).sql) ?? [];
    steps[step]?.push(answer.length);
    return answer;
  };
  await deleteEnvironment({ ...database, rows }, going);
  t.strictSame(steps, { told: [5_000, 3, 0], old: [1_000, 1, 0] });
  t.equal((await database.rows(sql`select from ${sessionEvents}`)).length, 3);
  t.equal((await database.rows(sql`select from ${sessions}`)).length, 1);
});

t.test('postgres: a session and the end of its environment: whichever is first, the other is told', async (t) => {
  const database = await testDatabase(t);
  const [replica] = await replicas(t, database, 1);
  const other = replica?.database ?? database;

  const archived = await place(database, 'archived');
  const archiving = await hold(t, database, (bound) => archiveEnvironment(bound, archived));
  t.match(
    await createSession(other, { environmentId: archived }),
    { session: { status: 'idle' } },
    'not archived yet: nobody waits',
  );
  await archiving.commit();
  t.match(await caught(createSession(other, { environmentId: archived })), { code: 'environment_archived' });

  const deleted = await place(database, 'deleted');
  const deleting = await hold(t, database, (bound) => deleteEnvironment(bound, deleted));
  const late = caught(createSession(other, { environmentId: deleted }));
  await deleting.untilBlocked();
  await deleting.commit();
  t.match(await late, { code: 'environment_not_found' });

  const taken = await place(database, 'taken along');
  const creating = await hold(t, database, (bound) => createSession(bound, { environmentId: taken }));
  const gone = deleteEnvironment(other, taken);
  await creating.untilBlocked();
  await creating.commit();
  await gone;
  t.equal(await everything(database).then((all) => all.includes(creating.answer.session.id)), false);
});
