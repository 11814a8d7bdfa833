import { sql } from 'kysely';
import t from 'tap';
import { newDesk } from '../support/desk.ts';
import { ENGINES, OPERATOR_KEY, rowOf, testServer } from '../support/harness.ts';
import { ITEM_CALLS } from '../support/places.ts';
import { settingsOf } from '../support/settings.ts';
import { checkRefusal } from '../support/wire.ts';

for (const engine of ENGINES) {
  t.test(engine, async (t) => {
    const server = await testServer(t, { engine });
    const { queue, database } = server;

    t.test('outputs_harvest is refused by name for a self_hosted environment, alone and in a batch', async (t) => {
      const { enqueue, environment, items: stored } = await newDesk(server);
      const refused = await enqueue('session', { kind: 'outputs_harvest' });
      checkRefusal(t, refused, 400, 'alone');
      t.match(refused.json.error.message, /^kind outputs_harvest/);
      const items = [{}, { kind: 'outputs_harvest' }].map((fields, n) => ({
        ...{ data: { type: 'session', id: `${n}` }, ...fields },
      }));
      const path = `/control/v1/environments/${environment.id}/work/batch`;
      const batch = await server.call('POST', path, { as: OPERATOR_KEY, body: { items } });
      checkRefusal(t, batch, 400, 'in a batch');
      t.match(batch.json.error.message, /items\.1\.kind/);
      t.strictSame(await stored(), []);
    });

    t.test('attempts are a number from 1 to a million, and told', async (t) => {
      const { enqueue, items } = await newDesk(server);
      for (const max of [0, -1, 1_000_001, 1.5, '5', true]) {
        const refused = await enqueue('session', { kind: 'model_turn', max_attempts: max });
        checkRefusal(t, refused, 400, JSON.stringify(max));
        t.match(refused.json.error.message, /max_attempts/);
      }
      t.strictSame(await items(), []);
      for (const max of [1, 1_000_000]) {
        const { status, json } = await enqueue(`${max}`, { max_attempts: max });
        t.equal(status, 201);
        t.equal((await rowOf(database, json.id)).max_attempts, max);
      }
    });

    t.test('what is claimed is 404 to every wire call; failed, it is put back by its id', async (t) => {
      const { enqueue, requeue, place, id: environmentId } = await newDesk(server);
      const { id } = (await enqueue('session', { kind: 'model_turn', max_attempts: 1 })).json;
      const claimed = await queue.claim('model_turn', { ttlSeconds: 60 });
      t.equal(claimed?.id, id);
      const isInvisible = async (state: string) => {
        t.equal((await place.poll()).text, 'null', state);
        for (const [name, call] of Object.entries(ITEM_CALLS))
          t.equal((await call(place, id)).status, 404, `${name}, ${state}`);
      };
      await isInvisible('active');
      if (claimed) await queue.fail(claimed.lease, new Error('in vain'));
      await isInvisible('stopped');
      const { status, json } = await requeue(id);
      t.equal(status, 201);
      t.match(json, { requeued_from: id, attempt: 1, max_attempts: 1, last_error: null, lane: 'process' });
      t.match(await queue.claim('model_turn', { ttlSeconds: 60 }), { id: json.id, environmentId });
    });

    t.test('a late worker of an item that fell back gets 404, and its next poll nothing', async (t) => {
      const { enqueue, place, id: environmentId } = await newDesk(server);
      const { status, json } = await settingsOf(server, environmentId).change({ fallback_after_ms: 1 });
      t.match([status, json.effective], [200, { fallback_after_ms: 1 }]);
      const { id } = (await enqueue('session')).json;
      t.equal((await place.poll()).json.id, id);
      t.equal(await queue.claim('tool_exec', { ttlSeconds: 60 }), null, 'reserved');
      await database.rows(sql`update ${database.names.workItems} set created_at = created_at - interval '1 minute',
        lease_expires_at = clock_timestamp() - interval '1 second' where id = ${id}`);
      const claimed = await queue.claim('tool_exec', { ttlSeconds: 60 });
      t.not(claimed?.id, id);
      for (const [name, call] of Object.entries(ITEM_CALLS)) t.equal((await call(place, id)).status, 404, name);
      t.equal((await place.poll()).text, 'null');
      if (claimed) await queue.complete(claimed.lease);
    });
  });
}
