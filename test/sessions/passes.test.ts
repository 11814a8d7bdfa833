import { sql } from 'kysely';
import t from 'tap';
import { archiveEnvironment } from '../../src/control/change-environment.ts';
import type { Database } from '../../src/db/connect.ts';
import { rearmSessions } from '../../src/sessions/rearm.ts';
import { sessionTopic } from '../../src/sessions/session.ts';
import { watch } from '../support/gates.ts';
import { ENGINES, OPERATOR_KEY, testServer, until } from '../support/harness.ts';
import { lose, losing } from '../support/losing.ts';
import {
  ASKED,
  CUSTOM,
  itemsOf,
  MESSAGE,
  type RelayPlace,
  relayPlace,
  result,
  sessionRow,
  TOOL,
} from '../support/sessions.ts';

const LOOK = /needs_worker and not/;

const quietFor = ({ names, rows }: Database, id: string, seconds: number) =>
  rows(
    sql`update ${names.sessions} set last_event_at = clock_timestamp() - ${seconds} * interval '1 second' where id = ${id}`,
  );

for (const engine of ENGINES) {
  t.test(engine, async (t) => {
    const server = await testServer(t, { engine });
    const { call, database, queue } = server;

    t.test('one whose calls are for others, or are done, gets nobody', async (t) => {
      for (const [what, make] of [
        ['asked for', async (place: RelayPlace) => void (await losing(server, place, 0, MESSAGE, ASKED))],
        ['custom', async (place: RelayPlace) => void (await losing(server, place, 0, MESSAGE, CUSTOM))],
        [
          'answered',
          async (place: RelayPlace) => {
            const { id, calls } = await losing(server, place, 0);
            await place.answer(id, result(calls[0] ?? ''), result(calls[1] ?? ''));
          },
        ],
        [
          'archived',
          async (place: RelayPlace) => {
            const { id } = await losing(server, place, 0);
            await place.append(id, MESSAGE);
            await call('POST', `/v1/sessions/${id}/archive`, { as: OPERATOR_KEY });
            await queue.enqueue({ environmentId: place.environmentId, sessionId: id });
          },
        ],
      ] as const) {
        const place = await relayPlace(server);
        await make(place);
        await lose(server, place);
        await queue.sweep();
        await queue.sweep();
        t.equal(await place.poll(), null, what);
        const { workItems } = database.names;
        const live = await database.rows(
          sql`select from ${workItems} where environment_id = ${place.environmentId} and state <> 'stopped'`,
        );
        t.equal(live.length, 0, what);
      }
    });

    t.test('an archived environment gets nobody either, and holds up no other', async (t) => {
      const [gone, place] = [await relayPlace(server), await relayPlace(server)];
      const [first, second] = [await losing(server, gone, 0), await losing(server, place, 0)];
      await lose(server, gone);
      await lose(server, place);
      await archiveEnvironment(database, gone.environmentId);
      await queue.sweep();
      t.match(await sessionRow(database, first.id), { is_held: true, arm_count: 0 });
      t.equal((await itemsOf(database, first.id)).length, 1);
      t.equal((await itemsOf(database, second.id)).length, 2);
    });

    t.test(
      'what has the same name elsewhere, or is of another kind, is no worker of a session, and no decision about one',
      async (t) => {
        const { workItems } = database.names;
        for (const state of ['queued', 'stopped']) {
          for (const namesake of ['elsewhere', 'of another kind']) {
            const [place, elsewhere] = [await relayPlace(server), await relayPlace(server)];
            const { id } = await losing(server, place, 0);
            await lose(server, place);
            const { item } = await queue.enqueue(
              namesake === 'elsewhere'
                ? { environmentId: elsewhere.environmentId, sessionId: id }
                : { environmentId: place.environmentId, sessionId: id, kind: 'model_turn' },
            );
            if (state === 'stopped') {
              await database.rows(
                sql`update ${workItems} set state = 'stopped', stop_reason = 'operator', stopped_at = clock_timestamp() where id = ${item.id}`,
              );
            }
            await queue.sweep();
            t.equal((await itemsOf(database, id)).length, 3, `${namesake}, ${state}`);
            t.match(await sessionRow(database, id), { is_held: false, arm_count: 1 });
          }
        }
      },
    );

    t.test('a turn in which the agent has gone quiet is over, and those who stream it are told', async (t) => {
      const place = await relayPlace(server);
      const [quiet, busy, idle, called] = [
        await place.session(),
        await place.session(),
        await place.session(),
        await place.session(),
      ];
      await place.append(quiet, MESSAGE);
      await place.append(busy, MESSAGE);
      await place.append(called, MESSAGE, TOOL);
      const { sessions } = database.names;
      await database.rows(sql`update ${sessions} set is_held = true, arm_count = 3 where id = ${quiet}`);
      await quietFor(database, quiet, 301);
      await quietFor(database, busy, 295);
      await quietFor(database, idle, 100_000);
      await quietFor(database, called, 100_000);
      const before = [await sessionRow(database, busy), await sessionRow(database, idle)];
      let woken = 0;
      t.teardown(queue.listen([sessionTopic(quiet)], () => woken++));
      const calledEvents = await place.events(called);
      await queue.sweep();
      const [message, running, over, ...more] = await place.events(quiet);
      t.match([message, running], [MESSAGE, { type: 'session.status_running' }]);
      t.match(over, { type: 'session.status_idle', stop_reason: { type: 'end_turn' }, stop_details: null });
      t.ok(over.processed_at > running.processed_at);
      t.strictSame(more, []);
      t.match(await sessionRow(database, quiet), {
        status: 'idle',
        is_held: true,
        arm_count: 3,
        stop_reason: '{"type":"end_turn"}',
      });
      t.equal(woken, 1);
      t.strictSame([await sessionRow(database, busy), await sessionRow(database, idle)], before);
      t.strictSame(await place.events(called), calledEvents, 'a call that is open is not quiet');
      await queue.sweep();
      t.equal((await place.events(quiet)).length, 3, 'once');
      await place.append(quiet, MESSAGE);
      t.equal((await sessionRow(database, quiet)).status, 'running', 'and it goes on with the next event');
    });

    t.test('who speaks as the background looks is not cut short', async (t) => {
      const place = await relayPlace(server);
      const id = await place.session();
      await place.append(id, MESSAGE);
      await quietFor(database, id, 301);
      const watched = watch(database, LOOK);
      watched.close();
      const pass = rearmSessions(watched.database);
      await until('the look', () => watched.ended() === 1);
      await place.append(id, MESSAGE);
      watched.open();
      t.match(await pass, { topics: [] });
      t.equal((await sessionRow(database, id)).status, 'running');
      t.equal((await place.events(id)).at(-1).type, 'user.message');
    });
  });
}
