import { sql } from 'kysely';
import t from 'tap';
import { createEnvironment } from '../../src/control/environments.ts';
import type { Database } from '../../src/db/connect.ts';
import { appendEvents } from '../../src/sessions/append.ts';
import { createSession } from '../../src/sessions/create.ts';
import type { SentEvent } from '../../src/sessions/events.ts';
import { lockSession } from '../../src/sessions/lock.ts';
import { rearmSessions } from '../../src/sessions/rearm.ts';
import { sessionTopic } from '../../src/sessions/session.ts';
import { watch } from '../support/gates.ts';
import { testDatabase, testServer, until } from '../support/harness.ts';
import { hold, replicas } from '../support/interleave.ts';
import { lose, losing } from '../support/losing.ts';
import { everything, itemsOf, MESSAGE, relayPlace, sessionRow, TOOL, verdict } from '../support/sessions.ts';

const LOOK = /needs_worker and not/;

const quietFor = ({ names, rows }: Database, id: string, seconds: number) =>
  rows(
    sql`update ${names.sessions} set last_event_at = clock_timestamp() - ${seconds} * interval '1 second' where id = ${id}`,
  );

t.test('postgres: two replicas that look at once send for one worker', async (t) => {
  for (const order of ['at once', 'one after the other']) {
    const server = await testServer(t);
    const place = await relayPlace(server);
    const { id } = await losing(server, place, 0);
    await lose(server, place);
    const passes = (await replicas(t, server.database, 2)).map(({ database }) => watch(database, LOOK));
    for (const watched of passes) watched.close();
    const done = passes.map((watched) => rearmSessions(watched.database));
    await until('both have looked', () => passes.every((watched) => watched.ended() === 1));
    for (const [index, watched] of passes.entries()) {
      watched.open();
      if (order !== 'at once') await done[index];
    }
    await Promise.all(done);
    t.equal((await itemsOf(server.database, id)).length, 2, order);
    t.match(await sessionRow(server.database, id), { arm_count: 1 }, 'which is one loss');
  }
});

t.test('postgres: what changed since the look is seen: nobody is sent for what is withdrawn or held', async (t) => {
  for (const what of ['withdrawn', 'held']) {
    const server = await testServer(t);
    const { database } = server;
    const place = await relayPlace(server);
    const { id, calls } = await losing(server, place, 0, TOOL);
    await lose(server, place);
    const watched = watch(database, LOOK);
    watched.close();
    const pass = rearmSessions(watched.database);
    await until('the look', () => watched.ended() === 1);
    if (what === 'withdrawn') await place.append(id, verdict(calls[0] ?? '', 'deny'));
    else await database.rows(sql`update ${database.names.sessions} set is_held = true where id = ${id}`);
    const before = await everything(database);
    watched.open();
    t.match(await pass, { topics: [] });
    t.equal(await everything(database), before, what);
  }
});

t.test(
  'postgres: a session that somebody holds is passed over, its neighbours are not, and the next pass finds it',
  async (t) => {
    const server = await testServer(t);
    const place = await relayPlace(server);
    const [{ id: held }, { id: free }] = [await losing(server, place, 0), await losing(server, place, 0)];
    const quiet = await place.session();
    await place.append(quiet, MESSAGE);
    await lose(server, place);
    await lose(server, place);
    await quietFor(server.database, quiet, 301);
    const holds = [held, quiet].map((id) => hold(t, server.database, (bound) => lockSession(bound, id)));
    const [one, two] = await Promise.all(holds);
    t.match(await rearmSessions(server.database), { topics: [], more: false });
    t.equal((await itemsOf(server.database, held)).length, 1);
    t.equal((await itemsOf(server.database, free)).length, 2);
    await Promise.all([one?.rollback(), two?.rollback()]);
    t.match(await rearmSessions(server.database), { topics: [sessionTopic(quiet)] });
    t.equal((await itemsOf(server.database, held)).length, 2);
  },
);

t.test('postgres: a pass is bounded, and tells that there is more', async (t) => {
  const database = await testDatabase(t);
  const { sessions } = database.names;
  const { id: environmentId } = await createEnvironment(database, { name: 'many', type: 'self_hosted' });
  const { session } = await createSession(database, { environmentId });
  await appendEvents(database, session.id, [TOOL as SentEvent], 'agent');
  const clone = (count: number, prefix: string, status: string, needsWorker: boolean) =>
    database.rows(sql`
      insert into ${sessions} (id, environment_id, agent, status, open_calls, needs_worker, last_event_at)
      select ${prefix} || n, environment_id, agent, ${status}, case when ${needsWorker} then open_calls else '[]' end, ${needsWorker},
        clock_timestamp() - interval '1 hour'
      from ${sessions}, generate_series(1, ${count}::integer) n where id = ${session.id}`);
  await clone(101, 'sesn_unserved', 'idle', true);
  const armed = async () => (await database.rows(sql`select from ${database.names.workItems}`)).length;
  const passes = [await rearmSessions(database)];
  t.equal(await armed(), 101);
  passes.push(await rearmSessions(database));
  t.equal(await armed(), 102);
  t.strictSame(
    passes.map(({ more }) => more),
    [true, false],
  );
  await clone(101, 'sesn_idle', 'idle', false);
  await clone(101, 'sesn_quiet', 'running', false);
  const quiet = [await rearmSessions(database), await rearmSessions(database)];
  t.strictSame(
    quiet.map(({ more, topics }) => [more, topics.length]),
    [
      [true, 100],
      [false, 1],
    ],
  );
});
