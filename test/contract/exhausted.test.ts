import { sql } from 'kysely';
import t from 'tap';
import { ENGINES, lapse, OPERATOR_KEY, rowOf, testDatabase, testServer } from '../support/harness.ts';
import { along, itemIn, newPlace, type Place, type RowName, STALE_TOKEN } from '../support/places.ts';
import { settingsOf } from '../support/settings.ts';
import { BLOCK_MS, gotIt, waitingServer } from '../support/waiting.ts';

/** Past the sweep's patience of 2 s with late heartbeats. */
const LONG_LAPSED_SECONDS = 3;
const ACTS = ['the poll that would hand it out', 'the sweep'] as const;
const SPENT: readonly RowName[] = ['queued, reservation lapsed', 'starting, lease lapsed', 'active, lease lapsed'];
const LIVE: readonly RowName[] = ['queued, reservation live', 'starting, lease live', 'active, lease live'];

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

    for (const row of SPENT) {
      for (const how of ACTS) {
        t.test(`handed out as often as it may be (${row}), an item is stopped by ${how}, and stays so`, async (t) => {
          const [place, neighbour] = [await capped(1), await capped(null)];
          const [{ id }, other] = [await itemIn(place, row), await itemIn(neighbour, row)];
          for (const each of [id, other.id]) await lapse(plain, each, LONG_LAPSED_SECONDS);
          const before = await rowOf(plain, id);
          await act(how, place);
          const after = await rowOf(plain, id);
          t.strictSame(
            { ...after, stopped_at: null },
            {
              ...before,
              ...{ state: 'stopped', stop_reason: 'exhausted', lease_expires_at: null, stopped_at: null },
              lapsed_at: before.lease_expires_at,
            },
            'its id and all else are kept',
          );
          t.type(after.stopped_at, 'string');
          t.equal((await place.poll()).text, 'null');
          await server.queue.sweep();
          t.strictSame(await rowOf(plain, id), after);
          t.equal((await rowOf(plain, other.id)).stop_reason, null, 'not the neighbour');
          const page = await server.call(
            'GET',
            `/control/v1/environments/${place.environment.id}/work?reason=exhausted`,
            {
              as: OPERATOR_KEY,
            },
          );
          t.match(page.json.data, [{ id, state: 'stopped' }]);
          const superseded = await plain.rows(sql`select from ${plain.names.handOuts} where work_id = ${id}`);
          t.equal(superseded.length, 0, 'its last hand-out was not superseded');
        });
      }

      t.test(`the sweep leaves an item (${row}) that lapsed a second ago to late heartbeats`, async (t) => {
        const place = await capped(1);
        const { id } = await itemIn(place, row);
        await lapse(plain, id, 1);
        const before = await rowOf(plain, id);
        await server.queue.sweep();
        t.strictSame(await rowOf(plain, id), before);
        t.equal((await place.poll()).text, 'null');
        t.match(await rowOf(plain, id), { stop_reason: 'exhausted' }, 'a poll does not');
      });
    }

    for (const row of LIVE) {
      t.test(`an item whose last lease is live is not set aside (${row})`, async (t) => {
        const place = await capped(1);
        const { id } = await itemIn(place, row);
        const before = await rowOf(plain, id);
        for (const how of ACTS) await act(how, place);
        t.strictSame(await rowOf(plain, id), before);
      });
    }

    t.test('a poll goes on behind what it sets aside; none is answered null while there is work', async (t) => {
      for (const query of ['', `?block_ms=${BLOCK_MS}`]) {
        const place = await capped(1);
        for (let n = 0; n < 70; n++) await place.enqueue();
        await plain.rows(sql`update ${plain.names.workItems}
          set hand_out_count = 1, is_last_hand_out = true, handed_out_at = clock_timestamp(), priority = 1
          where environment_id = ${place.environment.id}`);
        const ids = [await place.enqueue(), await place.enqueue()];
        /** Whose time is up meanwhile, on a busy machine, comes again. */
        const next = async (): Promise<string | undefined> => {
          const since = performance.now();
          const { json } = await place.poll(query);
          return json === null && query !== '' && performance.now() - since >= BLOCK_MS ? next() : json?.id;
        };
        t.strictSame([await next(), await next()], ids);
        t.equal((await place.poll()).text, 'null');
        const [row] = await plain.rows(sql<{ n: number }>`select count(*)::integer as n from ${plain.names.workItems}
          where environment_id = ${place.environment.id} and stop_reason = 'exhausted'`);
        t.equal(row?.n, 70);
      }
    });

    t.test('a late heartbeat before that still extends', async (t) => {
      const place = await capped(1);
      for (const [row, expected] of [
        ['starting, lease lapsed', 'NO_HEARTBEAT'],
        ['active, lease lapsed', undefined],
      ] as const) {
        const { id, token } = await itemIn(place, row);
        const beaten = await place.beat(id, expected ?? token ?? '');
        t.match(beaten, { status: 200, json: { lease_extended: true, state: 'active' } });
        for (const how of ACTS) await act(how, place);
        t.match(await rowOf(plain, id), { state: 'active' });
        await place.forceStop(id);
      }
    });

    t.test('heartbeats are answered as for stopped items: 200 if it ever was active, else 412', async (t) => {
      const swept = async (place: Place, id: string) => {
        await settingsOf(server, place.environment.id).change({ max_hand_outs: 2 });
        await lapse(plain, id, LONG_LAPSED_SECONDS);
        await server.queue.sweep();
        t.match(await rowOf(plain, id), { state: 'queued' });
        await settingsOf(server, place.environment.id).change({ max_hand_outs: 1 });
      };
      for (const [row, isSwept, status] of [
        ['queued, reservation lapsed', false, 412],
        ['starting, lease lapsed', false, 412],
        ['starting, lease lapsed', true, 412],
        ['active, lease lapsed', false, 200],
        ['active, lease lapsed', true, 200],
      ] as const) {
        for (const how of ACTS) {
          if (isSwept && how === 'the sweep') continue; // what the sweep put back is a poll's
          const place = await capped(1);
          const { id, token } = await itemIn(place, row);
          if (isSwept) await swept(place, id);
          else await lapse(plain, id, LONG_LAPSED_SECONDS);
          await act(how, place);
          const before = await rowOf(plain, id);
          t.match(before, { stop_reason: 'exhausted' }, `${row} ${how}`);
          for (const expected of ['NO_HEARTBEAT', STALE_TOKEN, token ?? STALE_TOKEN]) {
            const answer = await place.beat(id, expected);
            t.equal(answer.status, status, `${row} ${how} ${expected}`);
            if (status === 200) t.match(answer.json, { lease_extended: false, state: 'stopped' });
            else t.match(answer.json.error.details.current_state, { lease_extended: false, state: 'stopped' });
          }
          t.match(await place.ack(id), { status: 200, json: { state: 'stopped' } });
          t.equal((await place.stop(id)).status, 409);
          t.strictSame(await rowOf(plain, id), before, 'the whole row is as it was');
        }
      }
    });

    for (const how of ACTS) {
      t.test(`the follow-up of what ${how} sets aside goes to the poll that waits`, async (t) => {
        const waiting = await waitingServer(t, { plain });
        const { queue, environment, wait } = waiting;
        const request = { environmentId: environment.id, sessionId: 'session' };
        const { item } = await queue.enqueue({ ...request, maxHandOuts: 1 });
        const { id } = (await waiting.poll()).answer.json;
        await queue.ack([{ environmentId: environment.id, id }]);
        const covered = await queue.enqueue({ ...request, requestId: 'next', followUp: true });
        t.match(covered, { created: false, item: { id: item.id } });
        const { ended } = await wait();
        await lapse(plain, id, LONG_LAPSED_SECONDS);
        await (how === 'the sweep' ? queue.sweep() : queue.wake(environment.id));
        const timed = await ended;
        t.match(await rowOf(plain, timed.answer.json?.id), {
          seq: String(Number(item.seq) + 1),
          session_id: 'session',
        });
        gotIt(t, timed, timed.answer.json?.id);
      });
    }

    t.test('an item that ended otherwise is not set aside, and none is twice', async (t) => {
      const place = await capped(1);
      for (const row of ['stopped, ever active', 'stopped, never acked', 'stopping, lease lapsed'] as const) {
        const { id } = await along(place, { id: await place.enqueue(), token: null }, row);
        for (const how of ACTS) await act(how, place);
        t.match(await rowOf(plain, id), {
          state: 'stopped',
          stop_reason: row.startsWith('stopping') ? 'abandoned' : 'worker',
        });
      }
    });
  });
}
