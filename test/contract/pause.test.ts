import { sql } from 'kysely';
import t from 'tap';
import { archiveEnvironment } from '../../src/control/change-environment.ts';
import { ENGINES, lapse, rowOf, testDatabase, testServer, until } from '../support/harness.ts';
import { itemIn, newPlace, type RowName, setLease } from '../support/places.ts';
import { settingsOf } from '../support/settings.ts';
import { BLOCK_MS, gotIt, waitingServer } from '../support/waiting.ts';

const OFFERED: readonly RowName[] = [
  ...(['queued, never handed out', 'queued, reservation lapsed', 'starting, lease lapsed'] as const),
  'active, lease lapsed',
];
const BLOCKED_MS = 300;

for (const engine of ENGINES) {
  t.test(engine, async (t) => {
    const plain = await testDatabase(t, engine);
    const server = await testServer(t, { database: plain });
    const pausable = async () => {
      const place = await newPlace(server);
      return { place, ...settingsOf(server, place.environment.id) };
    };

    t.test('pausing and resuming answer the settings, and do nothing twice', async (t) => {
      const { place, read, pause, resume } = await pausable();
      const unpaused = await read();
      const paused = await pause();
      t.match(paused, { status: 200, json: { paused_at: /^\d{4}-.*Z$/ } });
      t.strictSame(paused.json, { ...unpaused.json, paused_at: paused.json.paused_at });
      t.strictSame((await pause()).json, paused.json, 'paused since the first time');
      t.strictSame((await read()).json, paused.json);
      t.equal((await place.poll()).text, 'null');
      for (const again of [await resume(), await resume(), await read()]) t.strictSame(again.json, unpaused.json);
      const later = (await pause()).json.paused_at;
      t.ok(later > paused.json.paused_at, 'a pause of its own');
    });

    for (const row of OFFERED) {
      t.test(`nothing is handed out (${row}) until it is resumed; the neighbour's is`, async (t) => {
        const { place, pause, resume } = await pausable();
        const neighbour = await newPlace(server);
        const { id } = await itemIn(place, row);
        await itemIn(neighbour, row);
        await pause();
        const before = await rowOf(plain, id);
        t.equal((await place.poll()).text, 'null', 'at once');
        const began = performance.now();
        t.equal((await place.poll(`?block_ms=${BLOCKED_MS}`)).text, 'null');
        const waited = performance.now() - began;
        t.ok(waited >= BLOCKED_MS - 5, `when its time was up, after ${waited} ms`);
        t.strictSame(await rowOf(plain, id), before, 'the whole row is as it was');
        t.match((await neighbour.poll()).json, { id: String });
        await resume();
        t.match((await place.poll()).json, { id: String, state: 'queued' });
      });
    }

    t.test('what is spent is not set aside by a poll that hands nothing out', async (t) => {
      const { place, change, pause, resume } = await pausable();
      await change({ max_hand_outs: 1 });
      const { id } = await itemIn(place, 'queued, reservation lapsed');
      await pause();
      const before = await rowOf(plain, id);
      t.equal((await place.poll()).text, 'null');
      t.strictSame(await rowOf(plain, id), before);
      await resume();
      t.equal((await place.poll()).text, 'null');
      t.match(await rowOf(plain, id), { state: 'stopped', stop_reason: 'exhausted' });
    });

    t.test('running work goes on: ack, heartbeats, stop, finalising by poll and by sweep', async (t) => {
      const { place, pause } = await pausable();
      const reserved = await itemIn(place, 'queued, reservation live');
      const starting = await itemIn(place, 'starting, lease live');
      const active = await itemIn(place, 'active, lease live');
      const lapsing = await itemIn(place, 'active, lease live');
      const stopping = [await itemIn(place, 'stopping, lease live'), await itemIn(place, 'stopping, lease live')];
      const { id: waiting } = await itemIn(place, 'queued, never handed out');
      const untouched = await rowOf(plain, waiting);
      await pause();
      t.match(await place.ack(reserved.id), { status: 200, json: { state: 'starting' } });
      t.match(await place.beat(reserved.id, 'NO_HEARTBEAT'), { json: { lease_extended: true, state: 'active' } });
      t.match(await place.beat(starting.id, 'NO_HEARTBEAT'), { json: { lease_extended: true, state: 'active' } });
      t.match(await place.beat(active.id, active.token ?? ''), { json: { lease_extended: true } });
      await lapse(plain, lapsing.id, 1);
      t.match(await place.beat(lapsing.id, lapsing.token ?? ''), { json: { lease_extended: true } }, 'also a late one');
      t.equal((await place.stop(active.id)).status, 204);
      t.equal((await place.retrieve(active.id)).json.state, 'stopping');
      t.equal((await place.forceStop(starting.id)).status, 204);
      const [byPoll = '', bySweep = ''] = stopping.map(({ id }) => id);
      await lapse(plain, byPoll);
      t.equal((await place.poll()).text, 'null');
      t.match(await rowOf(plain, byPoll), { state: 'stopped', stop_reason: 'abandoned' });
      await setLease(place, bySweep, null);
      await lapse(plain, lapsing.id, 10);
      await server.queue.sweep();
      t.match(await rowOf(plain, bySweep), { state: 'stopped', stop_reason: 'abandoned' });
      t.match(await rowOf(plain, lapsing.id), { state: 'queued', id: lapsing.id }, 'the sweep puts back');
      t.equal((await place.poll()).text, 'null');
      t.strictSame(await rowOf(plain, waiting), untouched);
    });

    t.test('an archived environment can be paused and resumed', async (t) => {
      const { place, pause, resume } = await pausable();
      const { id } = await itemIn(place, 'queued, never handed out');
      await archiveEnvironment(plain, place.environment.id);
      t.match(await pause(), { status: 200, json: { paused_at: String } });
      t.equal((await place.poll()).text, 'null');
      t.match(await resume(), { status: 200, json: { paused_at: null } });
      t.equal((await place.poll()).json.id, id, 'what it has is still served');
    });

    t.test('resuming wakes the polls that wait, of each kind of key', async (t) => {
      const waiting = await waitingServer(t, { plain });
      const { enqueue, environment, queue, looks, wait } = waiting;
      const { pause, resume } = settingsOf(waiting, environment.id);
      await pause();
      const ids = [await enqueue('one'), await enqueue('two')];
      await plain.rows(sql`update ${plain.names.workItems} set created_at = created_at - interval '1 hour'
        where environment_id = ${environment.id}`);
      const { ended } = await wait();
      const looked = looks.ended();
      const patient = queue.poll({ environmentId: environment.id, blockMs: BLOCK_MS, minQueuedAgeMs: 60_000 });
      await until('the other line was looked for', () => looks.ended() > looked);
      await resume();
      const timed = await ended;
      const got = [timed.answer.json?.id, (await patient)?.item.id];
      t.strictSame(got.sort(), ids.sort());
      gotIt(t, timed, timed.answer.json?.id);
    });

    t.test('a poll that waits when it is paused waits on, and gets nothing that comes', async (t) => {
      const waiting = await waitingServer(t, { plain });
      const { enqueue, environment, wait } = waiting;
      const { pause } = settingsOf(waiting, environment.id);
      const { ended } = await wait();
      await pause();
      const id = await enqueue('session');
      const { answer, ms } = await ended;
      t.equal(answer.text, 'null');
      t.ok(ms >= BLOCK_MS - 5, `its time was up, after ${ms} ms`);
      t.match(await rowOf(plain, id), { state: 'queued', hand_out_count: 0, handed_out_at: null });
    });
  });
}
