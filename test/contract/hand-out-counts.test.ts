import { sql } from 'kysely';
import t from 'tap';
import { ENGINES, lapse, rowOf, testDatabase, testServer } from '../support/harness.ts';
import { itemIn, newPlace, type Place } from '../support/places.ts';
import { NONE_OWN, settingsOf } from '../support/settings.ts';

/** Past the sweep's patience of 2 s with late heartbeats. */
const LONG_LAPSED_SECONDS = 3;
const ACTS = ['the poll that would hand it out', 'the sweep'] as const;

for (const engine of ENGINES) {
  t.test(engine, async (t) => {
    const plain = await testDatabase(t, engine);
    const server = await testServer(t, { database: plain });
    const capped = async (maxHandOuts: number | null) => {
      const place = await newPlace(server);
      const settings = settingsOf(server, place.environment.id);
      await settings.change({ max_hand_outs: maxHandOuts });
      return { ...place, ...settings };
    };
    const act = async (how: (typeof ACTS)[number], place: Place) =>
      how === 'the sweep' ? server.queue.sweep() : void (await place.poll());
    /** Handed out and lapsed, `times` times; answers the ids. */
    const handOut = async (place: Place, times: number) => {
      const ids: (string | undefined)[] = [];
      for (let n = 0; n < times; n++) {
        const { json } = await place.poll();
        ids.push(json?.id);
        if (json !== null) await lapse(plain, json.id, LONG_LAPSED_SECONDS);
      }
      return ids;
    };

    for (const row of ['queued, reservation lapsed', 'starting, lease lapsed', 'active, lease lapsed'] as const) {
      t.test(`one poll takes one item, and leaves the next one (${row}) as it was`, async (t) => {
        const place = await capped(null);
        const ids = [(await itemIn(place, 'active, lease live')).id, (await itemIn(place, row)).id];
        for (const id of ids) await lapse(plain, id);
        const before = await Promise.all(ids.map((id) => rowOf(plain, id)));
        t.match((await place.poll()).json, { id: String });
        const after = await Promise.all(ids.map((id) => rowOf(plain, id).catch(() => null)));
        const kept = after.findIndex((found) => found !== null);
        t.equal(after[1 - kept], null, 'the other has another id');
        t.strictSame(after[kept], before[kept]);
        const superseded = await plain.rows(
          sql`select from ${plain.names.handOuts} where environment_id = ${place.environment.id}`,
        );
        t.equal(superseded.length, 1);
      });
    }

    t.test(
      'an item is handed out as often as it may be, each time under another id; without a cap for ever',
      async (t) => {
        for (const cap of [1, 3, null]) {
          const place = await capped(cap);
          await place.enqueue();
          const ids = await handOut(place, 5);
          t.equal(new Set(ids.filter(Boolean)).size, cap ?? 5);
          t.strictSame(
            ids.slice(cap ?? 5),
            Array.from({ length: 5 - (cap ?? 5) }, () => undefined),
          );
        }
      },
    );

    t.test("the item's own cap wins over the environment's, that over the process's", async (t) => {
      const strict = await testServer(t, { database: plain, settings: { maxHandOuts: 2 } });
      for (const [item, environment, expected] of [
        [undefined, null, 2],
        [undefined, 1, 1],
        [undefined, 3, 3],
        [1, 3, 1],
        [3, 1, 3],
        [4, null, 4],
      ] as const) {
        for (const how of ACTS) {
          const place = await newPlace(strict);
          const environmentId = place.environment.id;
          await settingsOf(strict, environmentId).change({ max_hand_outs: environment });
          const request = { environmentId, sessionId: 'session', ...(item === undefined ? {} : { maxHandOuts: item }) };
          const { item: enqueued } = await strict.queue.enqueue(request);
          for (let n = 1; n <= expected; n++) {
            const { json } = await place.poll();
            t.match(json, { id: String }, `${item} ${environment}: hand-out ${n}`);
            await lapse(plain, json.id, LONG_LAPSED_SECONDS);
          }
          await (how === 'the sweep' ? strict.queue.sweep() : place.poll());
          t.match(
            await strict.queue.list(environmentId, { limit: 1 }),
            { items: [{ seq: enqueued.seq, state: 'stopped' }] },
            `${item} ${environment}: by ${how}`,
          );
        }
      }
    });

    t.test('a hand-out that its client did not see does not count, one that it may have seen does', async (t) => {
      for (const [unseen, times] of [
        [true, 2],
        [false, 1],
      ] as const) {
        for (const how of ACTS) {
          const place = await capped(2);
          const environmentId = place.environment.id;
          const id = await place.enqueue();
          await handOut(place, 1);
          const handOutOf = await server.queue.poll({ environmentId });
          if (handOutOf === null) throw new Error('nothing was handed out');
          t.equal(await server.queue.putBack(handOutOf, unseen), true);
          t.match(await rowOf(plain, handOutOf.item.id), { hand_out_count: times === 2 ? 1 : 2 });
          await act(how, place);
          t.match(
            await rowOf(plain, handOutOf.item.id).catch(() => ({ state: 'handed out again', stop_reason: null })),
            unseen ? { state: 'queued', stop_reason: null } : { state: 'stopped', stop_reason: 'exhausted' },
            `unseen ${unseen}, ${how}, once called ${id}`,
          );
        }
      }
    });

    t.test('an ack after a put-back is of a hand-out that counts', async (t) => {
      const place = await capped(2);
      await place.enqueue();
      await handOut(place, 1);
      const second = await server.queue.poll({ environmentId: place.environment.id });
      if (second === null) throw new Error('nothing was handed out');
      await server.queue.putBack(second, true);
      for (let acks = 1; acks <= 2; acks++) {
        t.match(await place.ack(second.item.id), { status: 200, json: { state: 'starting' } });
        t.match(await rowOf(plain, second.item.id), { hand_out_count: 2 }, 'one ack or more');
      }
      await lapse(plain, second.item.id);
      t.equal((await place.poll()).text, 'null');
      t.match(await rowOf(plain, second.item.id), { stop_reason: 'exhausted' });
    });

    t.test('the ack of a hand-out counts nothing, be it late', async (t) => {
      const place = await capped(null);
      const { id } = await itemIn(place, 'starting, lease lapsed');
      t.match(await rowOf(plain, id), { hand_out_count: 1 });
      await lapse(plain, id, LONG_LAPSED_SECONDS);
      await server.queue.sweep();
      t.match(await place.ack(id), { status: 200, json: { state: 'starting' } });
      t.match(await rowOf(plain, id), { hand_out_count: 1 });
    });

    t.test('a cap that is lowered acts on the next poll, one that is raised saves what waits', async (t) => {
      const lowered = await capped(null);
      await lowered.enqueue();
      await handOut(lowered, 2);
      await lowered.change({ max_hand_outs: 2 });
      await server.queue.sweep();
      t.match((await lowered.get('')).json.data, [{ state: 'queued' }], 'the sweep sees to what had its last hand-out');
      t.equal((await lowered.poll()).text, 'null');
      t.match((await lowered.get('')).json.data, [{ state: 'stopped' }]);
      const raised = await capped(1);
      const { id } = await itemIn(raised, 'queued, reservation lapsed');
      await lapse(plain, id, LONG_LAPSED_SECONDS);
      await raised.change({ max_hand_outs: 2 });
      await server.queue.sweep();
      t.match(await rowOf(plain, id), { state: 'queued', stop_reason: null });
      t.match((await raised.poll()).json, { id: String });
      const freed = await capped(1);
      await itemIn(freed, 'queued, reservation lapsed');
      await freed.change(NONE_OWN);
      t.match((await freed.poll()).json, { id: String });
    });
  });
}
