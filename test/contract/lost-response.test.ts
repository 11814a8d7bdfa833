import t from 'tap';
import { ENGINES, lapse, rowOf, testServer } from '../support/harness.ts';
import { itemIn, newPlace, type Place, STALE_TOKEN, secondsUntilLapse } from '../support/places.ts';

const SETTINGS = { leaseTtlSeconds: 110, leaseTtlSecondsMax: 200 };

/** Two beats further: `first` was replaced by `replaced`, which was replaced by `current`. */
async function beaten(place: Place) {
  const { id, token } = await itemIn(place, 'active, lease live');
  const first = token ?? '';
  const replaced: string = (await place.beat(id, first)).json.last_heartbeat;
  const current: string = (await place.beat(id, replaced)).json.last_heartbeat;
  return { id, first, replaced, current };
}

for (const engine of ENGINES) {
  t.test(engine, async (t) => {
    const server = await testServer(t, { engine, settings: SETTINGS });
    const { database } = server;

    for (const retry of ['1', '2']) {
      t.test(`retry ${retry} of an applied first beat is answered with the token it minted`, async (t) => {
        const place = await newPlace(server);
        const { id, token } = await itemIn(place, 'active, lease live');
        const replay = {
          type: 'work_heartbeat',
          last_heartbeat: token,
          lease_extended: true,
          state: 'active',
          ttl_seconds: 110,
        };
        t.strictSame((await place.beat(id, 'NO_HEARTBEAT', { retry })).json, replay);
        t.equal((await rowOf(database, id)).state, 'active');
        t.equal((await place.beat(id, token ?? '')).status, 200, 'and the client goes on from there');
      });

      t.test(`retry ${retry} of an applied beat extends, answers the current token and mints none`, async (t) => {
        const place = await newPlace(server);
        const { id, replaced, current } = await beaten(place);
        await lapse(database, id);
        const { lease_expires_at: _, lease_ttl_seconds: __, ...before } = await rowOf(database, id);
        const replay = {
          type: 'work_heartbeat',
          last_heartbeat: current,
          lease_extended: true,
          state: 'active',
          ttl_seconds: 50,
        };
        t.strictSame((await place.beat(id, replaced, { retry, ttl: 50 })).json, replay);
        const seconds = (await secondsUntilLapse(database, id)) ?? 0;
        t.ok(seconds > 45 && seconds <= 50, `a lease of ${seconds} s`);
        t.match(await rowOf(database, id), before, 'nothing but the lease changed');
        t.equal((await place.poll()).text, 'null');
      });
    }

    t.test('when the answer to a retry is lost too, the next retry gets the same token', async (t) => {
      const place = await newPlace(server);
      const { id, replaced, current } = await beaten(place);
      for (const retry of ['1', '2']) {
        t.match((await place.beat(id, replaced, { retry })).json, { last_heartbeat: current, lease_extended: true });
      }
      const { last_heartbeat: next } = (await place.beat(id, current)).json;
      t.ok(next > current);
    });

    for (const retry of [undefined, '0', '00', '3', '12', '-1', '1.5', '1e0', '', 'x', '1, 1']) {
      const marked = retry === undefined ? 'not marked' : `marked ${JSON.stringify(retry)}`;
      t.test(`a beat ${marked} is no retry: the replaced value is refused and the lease stays as it was`, async (t) => {
        const place = await newPlace(server);
        const { id, replaced } = await beaten(place);
        const before = await rowOf(database, id);
        t.equal((await place.beat(id, replaced, retry === undefined ? {} : { retry })).status, 412);
        t.strictSame(await rowOf(database, id), before);
      });
      t.test(`a beat ${marked} is no retry: a second claim is refused`, async (t) => {
        const place = await newPlace(server);
        const { id } = await itemIn(place, 'active, lease live');
        const before = await rowOf(database, id);
        const answer = await place.beat(id, 'NO_HEARTBEAT', retry === undefined ? {} : { retry });
        t.equal(answer.status, 412);
        t.match(answer.json.error.message, /claimed by another holder/);
        t.strictSame(await rowOf(database, id), before);
      });
    }

    t.test('of the replaced values only the last is accepted from a retry', async (t) => {
      const place = await newPlace(server);
      const { id, first, replaced } = await beaten(place);
      const before = await rowOf(database, id);
      for (const value of [first, 'NO_HEARTBEAT', STALE_TOKEN, `${replaced} `, replaced.replace('Z', '+00:00')]) {
        t.equal((await place.beat(id, value, { retry: '1' })).status, 412, value);
      }
      t.strictSame(await rowOf(database, id), before);
    });

    t.test('a retry of a beat that was never applied is a beat like any other', async (t) => {
      const place = await newPlace(server);
      const { id } = await itemIn(place, 'starting, lease live');
      const claimed = (await place.beat(id, 'NO_HEARTBEAT', { retry: '1' })).json;
      t.match(claimed, { state: 'active', lease_extended: true });
      const next = (await place.beat(id, claimed.last_heartbeat, { retry: '1' })).json;
      t.ok(next.last_heartbeat > claimed.last_heartbeat, 'a new token');
    });

    for (const [row, state] of [
      ['queued, reservation live', 'queued'],
      ['stopped, acked but never active', 'stopped'],
    ] as const) {
      t.test(`${row}: a retry claims nothing`, async (t) => {
        const place = await newPlace(server);
        const { id } = await itemIn(place, row);
        const before = await rowOf(database, id);
        const answer = await place.beat(id, 'NO_HEARTBEAT', { retry: '1' });
        t.match([answer.status, answer.json.error.details.current_state.state], [412, state]);
        t.strictSame(await rowOf(database, id), before);
      });
    }

    t.test('the next holder inherits no replaced value', async (t) => {
      const place = await newPlace(server);
      const { id, replaced, current } = await beaten(place);
      await lapse(database, id);
      const { id: newId } = (await place.poll()).json;
      await place.ack(newId);
      await place.beat(newId, 'NO_HEARTBEAT');
      const before = await rowOf(database, newId);
      for (const value of [replaced, current]) {
        t.equal((await place.beat(newId, value, { retry: '1' })).status, 412);
        t.equal((await place.beat(id, value, { retry: '1' })).status, 404);
      }
      t.strictSame(await rowOf(database, newId), before);
    });
  });
}
