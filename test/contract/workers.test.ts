import { sql } from 'kysely';
import t from 'tap';
import { ENGINES, lapse, OPERATOR_KEY, testServer } from '../support/harness.ts';
import { newPlace, type Place, setLease } from '../support/places.ts';
import { checkRefusal } from '../support/wire.ts';

for (const engine of ENGINES) {
  t.test(engine, async (t) => {
    const server = await testServer(t, { engine, settings: { reclaimOlderThanMs: 600_000 } });
    const { call, database } = server;
    const { workerSightings, workItems } = database.names;
    const ask = ({ environment }: Place) =>
      call('GET', `/control/v1/environments/${environment.id}/workers`, { as: OPERATOR_KEY });
    const listed = async (place: Place) => (await ask(place)).json.data;
    const idsOf = async (place: Place) =>
      (await listed(place)).map((worker: { worker_id: string }) => worker.worker_id);
    const pollAs = async (place: Place, worker: string) =>
      (await place.poll('', { headers: { 'anthropic-worker-id': worker } })).json?.id;
    const seen = (place: Place, worker: string, seconds: number) =>
      database.rows(sql`update ${workerSightings} set seen_at = clock_timestamp() - ${seconds} * interval '1 second'
        where environment_id = ${place.environment.id} and worker_id = ${worker}`);

    t.test('workers are told with what they hold, the last seen first, without those of a neighbour', async (t) => {
      const [place, elsewhere] = [await newPlace(server), await newPlace(server)];
      await elsewhere.enqueue('elsewhere');
      await pollAs(elsewhere, 'neighbour');
      await place.enqueue('reserved');
      const reserved = await pollAs(place, 'busy');
      await place.enqueue('active');
      const active = await pollAs(place, 'busy');
      await place.ack(active);
      await place.beat(active, 'NO_HEARTBEAT');
      t.equal(await pollAs(place, 'idle'), undefined);
      const { status, json } = await ask(place);
      t.equal(status, 200);
      t.strictSame(Object.keys(json), ['data']);
      t.equal(json.data.length, 2);
      const [idle, busy] = json.data;
      t.match(idle, { worker_id: 'idle', last_poll_at: /^\d{4}-.*\.\d{6}Z$/, holds: [] });
      t.match(busy, { worker_id: 'busy', last_poll_at: /Z$/ });
      t.ok(busy.last_poll_at < idle.last_poll_at);
      const details = async (id: string) =>
        (await call('GET', `/control/v1/environments/${place.environment.id}/work/${id}/history`, { as: OPERATOR_KEY }))
          .json;
      t.strictSame(
        busy.holds,
        await Promise.all(
          [reserved, active].map(async (id) => {
            const { work } = await details(id);
            return {
              ...{ work_id: id, session_id: work.data.id, state: work.state, lease_expires_at: work.lease_expires_at },
            };
          }),
        ),
      );
    });

    t.test('what lapsed, was given back or is over is held by nobody', async (t) => {
      const place = await newPlace(server);
      const holds = async () => (await listed(place))[0].holds.map((item: { state: string }) => item.state);
      await place.enqueue();
      const id = await pollAs(place, 'worker');
      t.strictSame(await holds(), ['queued']);
      await setLease(place, id, null);
      t.strictSame(await holds(), [], 'given back');
      await setLease(place, id, 60);
      await place.ack(id);
      t.strictSame(await holds(), ['starting']);
      await lapse(database, id);
      t.strictSame(await holds(), [], 'lapsed');
      await place.beat(id, 'NO_HEARTBEAT');
      t.strictSame(await holds(), ['active']);
      await place.stop(id);
      t.strictSame(await holds(), ['stopping']);
      await place.forceStop(id);
      t.strictSame(await holds(), [], 'over');
    });

    t.test('a worker is told for an hour after its last poll, and as long as it holds something', async (t) => {
      const place = await newPlace(server);
      await place.enqueue();
      const id = await pollAs(place, 'holder');
      await pollAs(place, 'idle');
      t.strictSame(await idsOf(place), ['idle', 'holder']);
      await seen(place, 'idle', 3_590);
      await seen(place, 'holder', 3_610);
      t.strictSame(await idsOf(place), ['idle', 'holder']);
      await seen(place, 'idle', 3_610);
      t.strictSame(await idsOf(place), ['holder']);
      await database.rows(sql`delete from ${workerSightings} where environment_id = ${place.environment.id}`);
      t.match(await listed(place), [{ worker_id: 'holder', last_poll_at: null, holds: [{ work_id: id }] }]);
      await lapse(database, id);
      t.strictSame(await idsOf(place), []);
    });

    t.test('no more than 1,000 workers, and 100 items of each', async (t) => {
      const { environment, ...place } = await newPlace(server);
      await database.rows(sql`
        insert into ${workerSightings} (environment_id, worker_id, seen_at)
        select ${environment.id}, 'worker ' || n, clock_timestamp() - n * interval '1 second' from generate_series(1, 1001) n`);
      await database.rows(sql`
        insert into ${workItems} (id, environment_id, session_id, kind, lane, state, worker_id, lease_expires_at)
        select 'work_held_' || n, ${environment.id}, n::text, 'tool_exec', 'wire', 'active', 'worker 1',
          clock_timestamp() + interval '1 hour' from generate_series(1, 101) n`);
      const data = await listed({ environment, ...place });
      t.equal(data.length, 1_000);
      t.equal(data[0].worker_id, 'worker 1');
      t.equal(data[999].worker_id, 'worker 1000');
      t.equal(data[0].holds.length, 100);
      t.equal(data[0].holds[99].session_id, '100', 'the first of them');
    });

    t.test('an unknown environment is 404, one without workers has none', async (t) => {
      checkRefusal(
        t,
        await call('GET', '/control/v1/environments/env_x/workers', { as: OPERATOR_KEY }),
        404,
        'unknown',
      );
      t.strictSame((await ask(await newPlace(server))).json, { data: [] });
    });
  });
}
