import { sql } from 'kysely';
import t from 'tap';
import { createEnvironment } from '../../src/control/environments.ts';
import { createSession } from '../../src/sessions/create.ts';
import { deleteSession } from '../../src/sessions/end.ts';
import { sessionTopic } from '../../src/sessions/session.ts';
import { ENGINES, OPERATOR_KEY, testDatabase, testServer } from '../support/harness.ts';
import { everything, itemsOf, MESSAGE, path, relayPlace, result, sessionRow, TOOL } from '../support/sessions.ts';
import { checkRefusal } from '../support/wire.ts';

for (const engine of ENGINES) {
  t.test(engine, async (t) => {
    const server = await testServer(t, { engine });
    const { call, database, queue } = server;
    const place = await relayPlace(server);
    const operator = { as: OPERATOR_KEY };
    const archive = (id: string) => call('POST', path(id, '/archive'), operator);
    const remove = (id: string) => call('DELETE', path(id), operator);
    const eventCount = async (id: string) => {
      const { sessionEvents } = database.names;
      const [row] = await database.rows(
        sql<{ n: number }>`select count(*)::integer as n from ${sessionEvents} where session_id = ${id}`,
      );
      return row?.n;
    };

    t.test('archiving ends a session: it is told, its work is cancelled, and once more changes nothing', async (t) => {
      const id = await place.session({ title: 'kept', metadata: { a: '1' } });
      const neighbour = await place.session();
      const [tool] = [await place.tool(id)];
      const worker = await place.work();
      await place.tool(neighbour);
      const { sessions } = database.names;
      await database.rows(sql`update ${sessions} set is_held = true, arm_count = 3 where id = ${id}`);
      let woken = 0;
      t.teardown(queue.listen([sessionTopic(id)], () => woken++));
      const { status, json } = await archive(id);
      t.equal(status, 200);
      t.match(json, { id, status: 'terminated', title: 'kept', metadata: { a: '1' }, archived_at: String });
      t.equal(json.updated_at, json.archived_at);
      t.equal(woken, 1, 'who streams it is woken');
      t.match((await place.events(id)).at(-1), { type: 'session.status_terminated', processed_at: json.archived_at });
      t.match(await itemsOf(database, id), [{ id: worker.id, state: 'stopped', stop_reason: 'cancelled' }]);
      t.match(await sessionRow(database, id), { needs_worker: false, is_held: false, open_calls: '[]', arm_count: 0 });
      t.match(await itemsOf(database, neighbour), [{ state: 'queued' }], "and nobody else's");
      const before = await everything(database);
      t.strictSame((await archive(id)).json, json);
      t.equal(await everything(database), before);
      await queue.sweep();
      t.match(await itemsOf(database, id), [{ id: worker.id }], 'nobody is enqueued for it again');
      t.ok(tool);
    });

    t.test('a session that has ended takes nothing new, whatever it is, and says so', async (t) => {
      const place = await relayPlace(server);
      const id = await place.session();
      const [answered, open] = [await place.tool(id), await place.tool(id)];
      const first = (await place.answer(id, result(answered))).json.data[0];
      const { token } = await place.work();
      await archive(id);
      const before = await everything(database);
      const refused: [as: string, event: object][] = [
        [OPERATOR_KEY, MESSAGE],
        [OPERATOR_KEY, { type: 'user.interrupt' }],
        [OPERATOR_KEY, TOOL],
        [OPERATOR_KEY, { type: 'user.tool_confirmation', tool_use_id: open, result: 'allow' }],
        [place.key, result(open)],
        [token, result(open)],
        [place.key, result('sevt_never')],
      ];
      for (const [as, event] of refused) {
        const answer = await place.send(id, [event], { as });
        checkRefusal(t, answer, 400, JSON.stringify(event));
        t.equal(answer.json.error.details?.error_code, 'session_terminated', JSON.stringify(event));
      }
      const both = await place.send(id, [result(answered), result(open)], { as: token });
      t.match(
        both,
        { status: 400, json: { error: { details: { error_code: 'session_terminated' } } } },
        'nor a repeat beside it',
      );
      t.equal(await everything(database), before);
      t.strictSame((await place.answer(id, result(answered))).json.data, [first], 'a repeat is answered all the same');
      t.equal(await everything(database), before);
      t.equal(
        (await call('GET', path(id), { as: token })).json.status,
        'terminated',
        'its worker reads what became of it',
      );
      t.equal((await place.events(id)).at(-1).type, 'session.status_terminated');
    });

    t.test('deleting removes a session and its events, cancels its work, and leaves its neighbour', async (t) => {
      const [id, neighbour] = [await place.session(), await place.session()];
      await place.append(neighbour, MESSAGE);
      const rest = [await sessionRow(database, neighbour), await place.events(neighbour)];
      while ((await place.poll()) !== null);
      await place.append(id, MESSAGE, TOOL);
      const worker = await place.work();
      t.strictSame(await remove(id).then(({ status, json }) => ({ status, json })), {
        status: 200,
        json: { id, type: 'session_deleted' },
      });
      t.equal(await sessionRow(database, id), undefined);
      t.equal(await eventCount(id), 0);
      t.match(await itemsOf(database, id), [{ state: 'stopped', stop_reason: 'cancelled' }]);
      for (const as of [OPERATOR_KEY, place.key, worker.token]) {
        checkRefusal(t, await call('GET', path(id), { as }), 404, 'retrieved');
        checkRefusal(t, await call('GET', path(id, '/events'), { as }), 404, 'listed');
        checkRefusal(
          t,
          await place.send(id, [as === OPERATOR_KEY ? MESSAGE : result('sevt_x')], { as }),
          404,
          'appended to',
        );
      }
      checkRefusal(t, await remove(id), 404, 'deleted again');
      checkRefusal(t, await archive(id), 404, 'archived');
      t.strictSame([await sessionRow(database, neighbour), await place.events(neighbour)], rest);
      await archive(neighbour);
      t.equal((await remove(neighbour)).status, 200, 'an archived one, too');
    });

    t.test('an environment goes with its sessions, but not while one of them has a worker', async (t) => {
      const home = await relayPlace(server);
      const id = await home.session();
      await home.append(id, TOOL);
      const at = `/v1/environments/${home.environmentId}`;
      const before = await everything(database);
      checkRefusal(t, await call('DELETE', at, operator), 409, 'unfinished work');
      t.equal(await everything(database), before);
      const { id: workId } = await home.work();
      await home.stop(workId, { as: OPERATOR_KEY });
      const elsewhere = await place.session();
      t.equal((await call('DELETE', at, operator)).status, 200);
      t.equal(await sessionRow(database, id), undefined);
      t.equal(await eventCount(id), 0);
      checkRefusal(t, await call('GET', path(id), operator), 404, 'its session');
      t.ok(await sessionRow(database, elsewhere));
    });
  });
}

t.test('postgres: events without end are deleted in steps', async (t) => {
  const database = await testDatabase(t);
  const { sessionEvents } = database.names;
  const { id: environmentId } = await createEnvironment(database, { name: 'large', type: 'self_hosted' });
  const [large, other] = [
    await createSession(database, { environmentId }),
    await createSession(database, { environmentId }),
  ];
  for (const [{ session }, count] of [
    [large, 5_001],
    [other, 3],
  ] as const) {
    await database.rows(sql`
      insert into ${sessionEvents} (session_id, seq, id, type, processed_at, bytes, event)
      select ${session.id}, n, ${session.id} || n, 'user.message', clock_timestamp(), 2, '{}' from generate_series(1, ${count}::integer) n`);
  }
  const steps: number[] = [];
  const rows: typeof database.rows = async (statement, transaction) => {
    const answer = await database.rows(statement, transaction);
    if (/with old as/.test(statement.compile(database.kysely).sql)) steps.push(answer.length);
    return answer;
  };
  await deleteSession({ ...database, rows }, large.session.id);
  t.strictSame(steps, [5_000, 1, 0]);
  const [left] = await database.rows(sql<{ n: number }>`select count(*)::integer as n from ${sessionEvents}`);
  t.equal(left?.n, 3);
});
