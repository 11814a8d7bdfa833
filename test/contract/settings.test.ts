import { sql } from 'kysely';
import t, { type Test } from 'tap';
import { deleteEnvironment } from '../../src/control/change-environment.ts';
import { ENGINES, OPERATOR_KEY, testServer } from '../support/harness.ts';
import { along, itemIn, newPlace, type Place, secondsUntilLapse } from '../support/places.ts';
import { NONE_OWN, PROCESS, PROCESS_FIELDS, settingsOf } from '../support/settings.ts';
import { checkRefusal } from '../support/wire.ts';

const FIELDS = {
  lease_ttl_seconds: 86_400,
  lease_ttl_max_seconds: 86_400,
  startup_lease_seconds: 86_400,
  reclaim_older_than_ms: 600_000,
  max_hand_outs: 1_000_000,
  max_attempts: 1_000_000,
  retention_days: 36_500,
  fallback_after_ms: 86_400_000,
};
const OWN = {
  lease_ttl_seconds: 20,
  lease_ttl_max_seconds: 40,
  startup_lease_seconds: 10,
  reclaim_older_than_ms: 3_000,
  max_hand_outs: 3,
  max_attempts: 4,
  retention_days: 2,
  fallback_after_ms: 500,
};

const isAbout = (t: Test, actual: number | null, expected: number, what: string) =>
  t.ok(actual !== null && actual > expected - 5 && actual <= expected, `${what}: ${expected} s, was ${actual}`);

for (const engine of ENGINES) {
  t.test(engine, async (t) => {
    const server = await testServer(t, { engine, settings: PROCESS });
    const { database, call } = server;
    const stored = async ({ environment }: Place) =>
      database.rows(
        sql`select to_jsonb(e)::text as row from ${database.names.environments} e where e.id = ${environment.id}`,
      );

    t.test("an environment without settings of its own has the process's", async (t) => {
      const { environment } = await newPlace(server);
      const { status, json } = await settingsOf(server, environment.id).read();
      t.equal(status, 200);
      t.strictSame(json, {
        ...{ type: 'environment_settings', environment_id: environment.id, paused_at: null },
        ...{ settings: NONE_OWN, effective: PROCESS_FIELDS },
      });
    });

    t.test("what is set is its own; what is omitted keeps its value, null falls back to the process's", async (t) => {
      const [place, neighbour] = [await newPlace(server), await newPlace(server)];
      const before = await stored(neighbour);
      const settings = settingsOf(server, place.environment.id);
      const expect = async (answer: { status: number; json: unknown }, own: typeof NONE_OWN | object) => {
        const effective = Object.fromEntries(
          Object.entries({ ...NONE_OWN, ...own }).map(([name, value]) => [
            name,
            value ?? PROCESS_FIELDS[name as keyof typeof PROCESS_FIELDS],
          ]),
        );
        t.match(answer, { status: 200 });
        t.strictSame(answer.json, {
          ...{ type: 'environment_settings', environment_id: place.environment.id, paused_at: null },
          ...{ settings: { ...NONE_OWN, ...own }, effective },
        });
        t.strictSame((await settings.read()).json, answer.json);
      };
      await expect(await settings.change({}), {});
      await expect(await settings.change(OWN), OWN);
      await expect(await settings.change({}), OWN);
      let own: Record<string, number | null> = OWN;
      for (const [name, value] of Object.entries({ startup_lease_seconds: 1, retention_days: 36_500 })) {
        own = { ...own, [name]: value };
        await expect(await settings.change({ [name]: value }), own);
      }
      // The maximum first: the process's TTL is above the one of its own.
      for (const name of Object.keys(OWN).toReversed()) {
        own = { ...own, [name]: null };
        await expect(await settings.change({ [name]: null }), own);
      }
      t.strictSame(await stored(neighbour), before, 'the neighbour is as it was');
    });

    t.test('each value is of its range, the bounds included', async (t) => {
      const place = await newPlace(server);
      const settings = settingsOf(server, place.environment.id);
      for (const least of Object.keys(FIELDS)) {
        // The default TTL is never above the greatest: the one sets the other.
        const beside = least === 'lease_ttl_max_seconds' ? { lease_ttl_seconds: 1 } : {};
        t.match(await settings.change({ [least]: 1, ...beside }), { status: 200, json: { settings: { [least]: 1 } } });
      }
      t.strictSame((await settings.change(FIELDS)).json.settings, FIELDS);
      const before = await stored(place);
      for (const [name, max] of Object.entries(FIELDS)) {
        for (const value of [0, -1, max + 1, 1.5, '5', true, [1], { value: 1 }, 1e20]) {
          const answer = await settings.change({ startup_lease_seconds: 9, [name]: value });
          checkRefusal(t, answer, 400, `${name} ${JSON.stringify(value)}`);
          t.match(answer.json.error.message, name);
        }
      }
      t.strictSame(await stored(place), before, 'all or nothing');
    });

    t.test('what is no change of settings is refused, unknown fields by name', async (t) => {
      const place = await newPlace(server);
      const settings = settingsOf(server, place.environment.id);
      const before = await stored(place);
      const unknown = await settings.change({ retention_days: 3, lease_ttl: 5 });
      checkRefusal(t, unknown, 400, 'an unknown field');
      t.match(unknown.json.error.message, /\blease_ttl\b/);
      for (const field of ['paused_at', 'effective', 'environment_id', 'id']) {
        const answer = await settings.change({ [field]: null });
        checkRefusal(t, answer, 400, field);
        t.match(answer.json.error.message, field);
      }
      for (const body of [[], null, 5, 'text']) checkRefusal(t, await settings.change(body), 400, JSON.stringify(body));
      const large = await settings.change({ retention_days: 3, text: 'x'.repeat(65_536) });
      checkRefusal(t, large, 413, 'a body above 64 KiB');
      const padded = `{"retention_days": 4${' '.repeat(65_536 - 21)}}`;
      const headers = { 'content-type': 'application/json' };
      const path = `/control/v1/environments/${place.environment.id}/settings`;
      const send = (raw: string) => call('PATCH', path, { as: OPERATOR_KEY, raw, headers });
      checkRefusal(t, await send(`${padded} `), 413, 'by one byte');
      t.strictSame(await stored(place), before);
      t.match(await send(padded), { status: 200, json: { settings: { retention_days: 4 } } });
    });

    t.test("a TTL above its maximum is refused, be one of them the process's", async (t) => {
      const place = await newPlace(server);
      const settings = settingsOf(server, place.environment.id);
      const refused = async (body: object) => {
        const before = await stored(place);
        const answer = await settings.change({ retention_days: 1, ...body });
        checkRefusal(t, answer, 400, JSON.stringify(body));
        t.match(answer.json.error.message, /lease_ttl_seconds.*lease_ttl_max_seconds/);
        t.strictSame(await stored(place), before, 'all or nothing');
      };
      const accepted = async (body: object) => t.equal((await settings.change(body)).status, 200, JSON.stringify(body));
      await refused({ lease_ttl_seconds: 201 });
      await refused({ lease_ttl_max_seconds: 99 });
      await refused({ lease_ttl_seconds: 31, lease_ttl_max_seconds: 30 });
      await accepted({ lease_ttl_seconds: 200 });
      await refused({ lease_ttl_max_seconds: 199 });
      await accepted({ lease_ttl_seconds: 300, lease_ttl_max_seconds: 300 });
      await refused({ lease_ttl_max_seconds: null });
      await accepted({ lease_ttl_seconds: null, lease_ttl_max_seconds: 100 });
      await accepted({ lease_ttl_seconds: 30, lease_ttl_max_seconds: 30 });
      await refused({ lease_ttl_seconds: null });
    });

    t.test('an environment that does not exist is 404', async (t) => {
      const { environment } = await newPlace(server);
      await deleteEnvironment(database, environment.id);
      for (const id of ['env_unknown', environment.id, 'x', '%00', 'e'.repeat(300)]) {
        const settings = settingsOf(server, id);
        checkRefusal(t, await settings.read(), 404, `GET ${id}`);
        checkRefusal(t, await settings.change(OWN), 404, `PATCH ${id}`);
        checkRefusal(t, await settings.pause(), 404, `pause ${id}`);
        checkRefusal(t, await settings.resume(), 404, `resume ${id}`);
      }
    });

    t.test('they act from the next call on, and not on the neighbour', async (t) => {
      const [place, neighbour] = [await newPlace(server), await newPlace(server)];
      await settingsOf(server, place.environment.id).change(OWN);
      for (const [here, fields] of [
        [place, OWN],
        [neighbour, PROCESS_FIELDS],
      ] as const) {
        await here.enqueue();
        const { id } = (await here.poll()).json;
        const lease = () => secondsUntilLapse(database, id);
        isAbout(t, await lease(), fields.reclaim_older_than_ms / 1_000, 'reservation');
        await here.ack(id);
        isAbout(t, await lease(), fields.startup_lease_seconds, 'startup lease');
        let token = 'NO_HEARTBEAT';
        for (const [desired, ttl] of [
          [undefined, fields.lease_ttl_seconds],
          [fields.lease_ttl_max_seconds + 1, fields.lease_ttl_max_seconds],
          [fields.lease_ttl_max_seconds, fields.lease_ttl_max_seconds],
          [7, 7],
        ] as const) {
          const { json } = await here.beat(id, token, desired === undefined ? {} : { ttl: desired });
          t.equal(json.ttl_seconds, ttl, `desired ${desired}`);
          isAbout(t, await lease(), ttl, `desired ${desired}`);
          token = json.last_heartbeat;
        }
      }
      await place.enqueue();
      const named = (await place.poll('?reclaim_older_than_ms=90000')).json.id;
      isAbout(t, await secondsUntilLapse(database, named), 90, "a poll's own value wins");
    });

    t.test('an item that has no TTL in force answers the one that a heartbeat would get', async (t) => {
      const place = await newPlace(server);
      const settings = settingsOf(server, place.environment.id);
      for (const row of ['queued, reservation live', 'stopped, never acked', 'starting, lease live'] as const) {
        await settings.change(NONE_OWN);
        const { id } = await itemIn(place, row);
        const told = async () => (await place.beat(id, 'stale')).json.error.details.current_state.ttl_seconds;
        t.equal(await told(), 100, row);
        await settings.change({ lease_ttl_seconds: 20 });
        t.equal(await told(), 20, row);
        await place.forceStop(id);
      }
    });

    t.test('a lease that runs keeps its length, and its answers the TTL in force', async (t) => {
      const place = await newPlace(server);
      const { id, token } = await along(place, { id: await place.enqueue(), token: null }, 'active, lease live');
      await settingsOf(server, place.environment.id).change(OWN);
      isAbout(t, await secondsUntilLapse(database, id), 100, 'the lease that runs');
      const stale = await place.beat(id, 'stale');
      t.equal(stale.json.error.details.current_state.ttl_seconds, 100);
      t.equal((await place.beat(id, token ?? '')).json.ttl_seconds, 20);
    });
  });
}
