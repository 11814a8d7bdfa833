import { sql } from 'kysely';
import t, { type Test } from 'tap';
import { WORK_KINDS } from '../../src/queue/items.ts';
import { DEFAULT_SETTINGS } from '../../src/queue/settings.ts';
import { sweep } from '../../src/queue/sweep.ts';
import { ENGINES, rowOf, testServer } from '../support/harness.ts';
import { ITEM_CALLS, newPlace, type Place } from '../support/places.ts';

/** Whatever its own lane makes of such an item: every state in which a wire call would touch one of the wire's. */
const STATES = [
  sql`state = 'queued'`,
  sql`state = 'starting', lease_expires_at = clock_timestamp() - interval '1 minute'`,
  sql`state = 'active', lease_expires_at = clock_timestamp() - interval '1 minute'`,
  sql`state = 'stopping', lease_expires_at = clock_timestamp() - interval '1 minute'`,
  ...['queued', 'starting', 'active'].map(
    (state) => sql`state = ${state}, max_hand_outs = 1, hand_out_count = 1, is_last_hand_out = true`,
  ),
];

async function isInvisible(t: Test, place: Place, id: string): Promise<void> {
  const { database } = place;
  for (const state of STATES) {
    await database.rows(sql`update ${database.names.workItems} set ${state} where id = ${id}`);
    const before = await rowOf(database, id);
    const where = `a ${before.kind} item, ${before.state}`;
    t.equal((await place.poll()).text, 'null', `poll, ${where}`);
    for (const [name, call] of Object.entries(ITEM_CALLS)) {
      const { status, json } = await call(place, id);
      t.equal(status, 404, `${name}, ${where}`);
      t.equal(json.error.type, 'not_found_error');
    }
    t.match((await place.get('')).json, { data: [], next_page: null });
    t.match((await place.get('/stats')).json, { depth: 0, pending: 0, oldest_queued_at: null });
    await sweep(database, DEFAULT_SETTINGS); // the wire lane's; the other lane's leases end in another way
    t.strictSame(await rowOf(database, id), before, `untouched: ${where}`);
  }
}

for (const engine of ENGINES) {
  t.test(engine, async (t) => {
    const server = await testServer(t, { engine });
    for (const kind of WORK_KINDS.filter((kind) => kind !== 'tool_exec')) {
      t.test(`work of kind ${kind} does not exist on the wire`, async (t) => {
        const place = await newPlace(server, kind === 'outputs_harvest' ? 'cloud' : 'self_hosted');
        const { item } = await server.queue.enqueue({ environmentId: place.environment.id, sessionId: 's', kind });
        await isInvisible(t, place, item.id);
      });
    }
    t.test('tool_exec work of a cloud environment does not exist on the wire', async (t) => {
      const place = await newPlace(server, 'cloud');
      await isInvisible(t, place, await place.enqueue());
    });
  });
}
