import { sql } from 'kysely';
import t from 'tap';
import { rfc3339 } from '../../src/db/sql.ts';
import { ENGINES, rowOf, testServer } from '../support/harness.ts';
import { newPlace, type Place, setLease } from '../support/places.ts';

type HandOut = Record<
  'work_id' | 'acknowledged_at' | 'started_at' | 'last_heartbeat_at' | 'lapsed_at' | 'reason',
  string | null
>;

/** What is kept of the superseded hand-outs of an item, oldest first. */
async function superseded({ database }: Place, id: string): Promise<HandOut[]> {
  const { handOuts, workItems } = database.names;
  return database.rows(sql<HandOut>`
    select h.work_id, ${rfc3339(sql`h.acknowledged_at`)} as acknowledged_at, ${rfc3339(sql`h.started_at`)} as started_at,
      ${rfc3339(sql`h.last_heartbeat`)} as last_heartbeat_at, ${rfc3339(sql`h.lapsed_at`)} as lapsed_at, h.reason
    from ${handOuts} h join ${workItems} w on w.seq = h.item_seq where w.id = ${id} order by h.superseded_at`);
}

/** Lets the lease run out so long ago that the sweep takes the item; answers when that was. */
async function lapsedLongAgo(place: Place, id: string): Promise<string> {
  const { workItems } = place.database.names;
  await setLease(place, id, -60);
  const [row] = await place.database.rows(
    sql<{ at: string }>`select ${rfc3339(sql`w.lease_expires_at`)} as at from ${workItems} w where w.id = ${id}`,
  );
  return row?.at ?? '';
}

for (const engine of ENGINES) {
  t.test(engine, async (t) => {
    const server = await testServer(t, { engine, settings: { reclaimOlderThanMs: 600_000 } });
    const { queue } = server;

    /** An item that somebody holds and beats for. */
    const active = async (place: Place) => {
      await place.enqueue();
      const { id } = (await place.poll()).json;
      const acked = (await place.ack(id)).json;
      const first = (await place.beat(id, 'NO_HEARTBEAT')).json.last_heartbeat;
      const last = (await place.beat(id, first)).json.last_heartbeat;
      const { started_at } = (await place.retrieve(id)).json;
      return { id, acknowledged_at: acked.acknowledged_at, started_at, last_heartbeat_at: last };
    };

    for (const swept of [false, true]) {
      t.test(`a hand-out that lapsed is kept as far as it came, ${swept ? 'swept' : 'polled'} away`, async (t) => {
        const place = await newPlace(server);
        const { id, ...reached } = await active(place);
        const lapsed_at = await lapsedLongAgo(place, id);
        if (swept) {
          await queue.sweep();
          t.equal((await rowOf(place.database, id)).state, 'queued', 'the sweep has put it back');
        }
        const again = (await place.poll()).json.id;
        t.not(again, id);
        t.strictSame(await superseded(place, again), [{ work_id: id, ...reached, lapsed_at, reason: 'lease_lapsed' }]);

        await lapsedLongAgo(place, again);
        const third = (await place.poll()).json.id;
        t.match(
          (await superseded(place, third))[1],
          { work_id: again, acknowledged_at: null, started_at: null, last_heartbeat_at: null },
          'the next one is told of itself alone',
        );
      });
    }

    t.test('a late ack goes on with the same hand-out: its first ack and start, its last heartbeat', async (t) => {
      const place = await newPlace(server);
      const { id, ...reached } = await active(place);
      await lapsedLongAgo(place, id);
      await queue.sweep();
      t.equal((await place.ack(id)).status, 200);
      await lapsedLongAgo(place, id);
      await queue.sweep();
      t.equal((await place.ack(id)).status, 200);
      const { last_heartbeat } = (await place.beat(id, 'NO_HEARTBEAT')).json;
      const lapsed_at = await lapsedLongAgo(place, id);
      const again = (await place.poll()).json.id;
      t.strictSame(await superseded(place, again), [
        { work_id: id, ...reached, last_heartbeat_at: last_heartbeat, lapsed_at, reason: 'lease_lapsed' },
      ]);
    });

    t.test('a reservation lapses at its end, one that was given back early never does', async (t) => {
      const place = await newPlace(server);
      await place.enqueue();
      const first = (await place.poll()).json.id;
      const lapsed_at = await lapsedLongAgo(place, first);
      const second = (await place.poll()).json.id;
      await setLease(place, second, null);
      const third = (await place.poll()).json.id;
      const nothing = { acknowledged_at: null, started_at: null, last_heartbeat_at: null };
      t.strictSame(await superseded(place, third), [
        { work_id: first, ...nothing, lapsed_at, reason: 'reservation_lapsed' },
        { work_id: second, ...nothing, lapsed_at: null, reason: 'reservation_lapsed' },
      ]);
    });
  });
}
