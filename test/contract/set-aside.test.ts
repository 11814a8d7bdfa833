import { sql } from 'kysely';
import t from 'tap';
import { history } from '../../src/queue/history.ts';
import { desk, newDesk } from '../support/desk.ts';
import { ENGINES, lapse, OPERATOR_KEY, rowOf, testServer } from '../support/harness.ts';
import { along, type RowName } from '../support/places.ts';
import { checkRefusal } from '../support/wire.ts';

const TRACED = { headers: { traceparent: `00-${'e'.repeat(32)}-${'f'.repeat(16)}-01`, tracestate: 'a=b' } };
const FIELDS = { priority: 5, max_hand_outs: 1, metadata: { team: 'tools' }, input: { n: [1, null] } };

for (const engine of ENGINES) {
  t.test(engine, async (t) => {
    const server = await testServer(t, { engine });
    const { database } = server;

    /** A place whose one item was handed out as often as it may be. */
    const exhausted = async (fields: object = {}) => {
      const place = await newDesk(server);
      const { id } = (await place.enqueue('session', { ...FIELDS, ...fields }, TRACED)).json;
      await along(place.place, { id, token: null }, 'active, lease lapsed');
      await place.poll();
      t.match(await rowOf(database, id), { state: 'stopped', stop_reason: 'exhausted' });
      return { ...place, old: id as string };
    };

    for (const reason of ['exhausted', 'failed']) {
      t.test(
        `what was set aside as ${reason} is put back as a new item that names it, and stays as it is`,
        async (t) => {
          const { requeue, old, poll, items, enqueue, environment } = await exhausted();
          await database.rows(sql`update ${database.names.workItems} set stop_reason = ${reason} where id = ${old}`);
          const before = await rowOf(database, old);
          const { status, json } = await requeue(old);
          t.equal(status, 201);
          t.match(json, {
            ...{
              state: 'queued',
              requeued_from: old,
              priority: 5,
              max_hand_outs: 1,
              hand_out_count: 0,
              stop_reason: null,
            },
            ...{ metadata: { team: 'tools' }, data: { id: 'session' }, follow_up: false, worker_id: null },
          });
          t.not(json.id, old);
          const { id: environmentId } = environment;
          const { work } = await history(database, { environmentId, id: old });
          t.match(work, { state: 'stopped', requeuedAs: json.id }, 'and the old one tells of the new');
          t.same(await rowOf(database, old), before);
          t.strictSame(
            (await items()).map(({ input }) => input),
            Array(2).fill('{"n":[1,null]}'),
          );
          t.equal((await enqueue('session')).json.id, json.id, 'it covers its session');
          const polled = await poll();
          t.equal(polled.json.id, json.id);
          t.match(Object.fromEntries(polled.headers), TRACED.headers);
        },
      );
    }

    t.test('it is put back once: a second time is 409, also when the new item has ended', async (t) => {
      const { requeue, old, forceStop, all } = await exhausted();
      const { json } = await requeue(old);
      for (const state of ['live', 'ended']) {
        if (state === 'ended') await forceStop(json.id);
        const before = await all();
        const refused = await requeue(old);
        checkRefusal(t, refused, 409, state);
        t.match(refused.json.error.message, /put back already/);
        t.same(await all(), before, state);
      }
    });

    t.test('while its slot is taken it is 409, and afterwards it is put back', async (t) => {
      const { requeue, old, enqueue, forceStop, all } = await exhausted();
      await enqueue('session', { kind: 'model_turn' });
      const { json } = await enqueue('session');
      const before = await all();
      const refused = await requeue(old);
      checkRefusal(t, refused, 409, 'taken');
      t.match(refused.json.error.message, /has a live item/);
      t.same(await all(), before);
      await forceStop(json.id);
      t.equal((await requeue(old)).status, 201);
    });

    t.test('what was not set aside is 409 and stays as it is', async (t) => {
      const ENDED: readonly [RowName, string | null][] = [
        ['queued, never handed out', null],
        ['active, lease lapsed', null],
        ['stopping, lease live', 'operator'],
        ['stopped, ever active', 'worker'],
        ['stopped, ever active', 'cancelled'],
        ['stopped, ever active', 'abandoned'],
        ['stopped, ever active', null],
      ];
      for (const [row, reason] of ENDED) {
        const { enqueue, requeue, place, all } = await newDesk(server);
        const { id } = (await enqueue('session')).json;
        await along(place, { id, token: null }, row);
        await database.rows(sql`update ${database.names.workItems} set stop_reason = ${reason} where id = ${id}`);
        const before = await all();
        checkRefusal(t, await requeue(id), 409, `${row}, ${reason}`);
        t.same(await all(), before);
      }
    });

    t.test(
      'an unknown id is 404, a superseded one names the present one; in an archived environment it is 400',
      async (t) => {
        const { enqueue, requeue, poll, archive, all } = await newDesk(server);
        const { id: first } = (await enqueue('session', { max_hand_outs: 2 })).json;
        await poll();
        await lapse(database, first);
        const { id: old } = (await poll()).json;
        await lapse(database, old);
        await poll();
        const before = await all();
        checkRefusal(t, await requeue('work_unknown'), 404, 'unknown');
        checkRefusal(t, await desk(server, server.environment.id).requeue(old), 404, 'in another environment');
        const superseded = await requeue(first);
        checkRefusal(t, superseded, 404, 'superseded');
        t.match(superseded.json.error.details, { error_code: 'work_superseded', work_id: old });
        await archive();
        const refused = await requeue(old);
        checkRefusal(t, refused, 400, 'archived');
        t.match(refused.json.error.details, { error_code: 'environment_archived' });
        t.same(await all(), before);
      },
    );

    t.test('an item is stopped by its own environment’s path alone', async (t) => {
      const [here, there] = [await newDesk(server), await newDesk(server)];
      const { id } = (await here.enqueue('session')).json;
      await here.enqueue('session', { follow_up: true });
      const before = await here.all();
      for (const stop of [there.stop, there.forceStop]) {
        for (const as of [{}, { as: OPERATOR_KEY }]) {
          checkRefusal(t, await stop(id, as), 404, 'in another environment');
          t.same(await here.all(), before);
        }
      }
      t.equal((await here.stop(id, { as: OPERATOR_KEY })).status, 204);
    });

    t.test('cancel stops all that is unfinished of a session, of every kind and lane, and nothing else', async (t) => {
      const { enqueue, cancel, place, id: environment, all } = await newDesk(server);
      const other = await newDesk(server);
      await other.enqueue('session');
      const stopping = (await enqueue('session')).json;
      await along(place, { id: stopping.id, token: null }, 'stopping, lease live');
      const ended = (await enqueue('session')).json;
      await place.forceStop(ended.id);
      const active = (await enqueue('session')).json;
      await along(place, { id: active.id, token: null }, 'active, lease live');
      const process = (await enqueue('session', { kind: 'model_turn' })).json;
      const neighbour = (await enqueue('neighbour')).json;
      await enqueue('session', { follow_up: true });
      const [endedRow, neighbourRow] = [await rowOf(database, ended.id), await rowOf(database, neighbour.id)];
      const asked = (await rowOf(database, stopping.id)).stop_requested_at;

      const { status, json } = await cancel('session');
      t.equal(status, 200);
      t.strictSame(
        json.data.map(({ id }: { id: string }) => id),
        [stopping.id, active.id, process.id],
        'oldest first',
      );
      for (const { id } of json.data) {
        const row = await rowOf(database, id);
        t.match(row, { state: 'stopped', stop_reason: 'cancelled', lease_expires_at: null, follow_up: null });
        t.match(row, { stopped_at: String, stop_requested_at: String });
      }
      t.equal((await rowOf(database, stopping.id)).stop_requested_at, asked, 'what asked first stays');
      t.same(await rowOf(database, ended.id), endedRow, 'a stopped item never changes');
      t.same(await rowOf(database, neighbour.id), neighbourRow);
      t.match(await other.items(), [{ state: 'queued' }]);
      t.match((await place.beat(active.id, 'x')).json, { lease_extended: false, state: 'stopped' });

      const before = await all();
      t.match(await cancel('session'), { status: 200, json: { data: [] } });
      t.match(await cancel('unknown'), { status: 200, json: { data: [] } });
      t.same(await all(), before, 'there is nothing more to be stopped');
      t.equal((await enqueue('session')).status, 201, 'the slot is free');
      checkRefusal(t, await desk(server, 'env_unknown').cancel('session'), 404, 'no such environment');
      const path = `/control/v1/environments/${environment}/work/cancel`;
      for (const body of [undefined, {}, { data: { type: 'session', id: '' } }, { data: { type: 'other', id: 'a' } }]) {
        checkRefusal(t, await server.call('POST', path, { as: OPERATOR_KEY, body }), 400, JSON.stringify(body));
      }
    });
  });
}
