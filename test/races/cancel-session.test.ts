import t, { type Test } from 'tap';
import { deleteEnvironment } from '../../src/control/change-environment.ts';
import type { Database } from '../../src/db/connect.ts';
import { ack } from '../../src/queue/ack.ts';
import { cancelSession } from '../../src/queue/cancel-session.ts';
import { enqueue } from '../../src/queue/enqueue.ts';
import { heartbeat } from '../../src/queue/heartbeat.ts';
import { poll } from '../../src/queue/poll.ts';
import { requeueSetAside } from '../../src/queue/requeue.ts';
import { DEFAULT_SETTINGS } from '../../src/queue/settings.ts';
import { stop } from '../../src/queue/stop.ts';
import { sweep } from '../../src/queue/sweep.ts';
import { desk, stored } from '../support/desk.ts';
import { lapse, rowOf, testServer } from '../support/harness.ts';
import { beat, hold, holding, type Stage } from '../support/interleave.ts';

async function newServer(t: Test, stage: Stage) {
  const server = await testServer(t, { settings: { maxHandOuts: 1 } });
  const { id, heartbeat: token } = await holding(server, 'session', stage);
  const ref = { environmentId: server.environment.id, id };
  const items = () => stored(server.database, ref.environmentId);
  return { ...server, ...desk(server, ref.environmentId), server, token, ref, items };
}
type Placed = Awaited<ReturnType<typeof newServer>>;

const taker = { workerId: null, reclaimOlderThanMs: null };
const lookOf = (maxHandOuts: number | null) => ({ ...DEFAULT_SETTINGS, maxHandOuts, minQueuedAgeMs: 0 });
const beatOf = ({ ref, token }: Placed) => [
  { ...ref, expectedLastHeartbeat: token, desiredTtlSeconds: 120, isRetry: false },
];
const followed = ({ ref }: Placed) => ({ environmentId: ref.environmentId, sessionId: 'session', followUp: true });

/** What a worker does beside a cancel: the verb that is held, and the call that waits. */
const BESIDE: readonly {
  name: string;
  stage: Stage;
  verb: (held: Database, place: Placed) => Promise<unknown>;
  call: (place: Placed) => Promise<{ status: number; json: unknown }>;
  late: object;
}[] = [
  {
    ...{ name: 'ack', stage: 'reserved', verb: (held, { ref }) => ack(held, [ref], DEFAULT_SETTINGS) },
    call: ({ call, work, ref }) => call('POST', work(`/${ref.id}/ack`)),
    late: { status: 200, json: { state: 'stopped', acknowledged_at: null } },
  },
  {
    ...{
      name: 'first heartbeat',
      stage: 'starting',
      verb: (held, place) => heartbeat(held, beatOf(place), DEFAULT_SETTINGS),
    },
    call: ({ server, ref }) => beat(server, ref.id),
    late: { status: 412 },
  },
  {
    ...{ name: 'heartbeat', stage: 'active', verb: (held, place) => heartbeat(held, beatOf(place), DEFAULT_SETTINGS) },
    call: ({ server, ref, token }) => beat(server, ref.id, token),
    late: { status: 200, json: { state: 'stopped', lease_extended: false } },
  },
  {
    ...{ name: 'stop', stage: 'active' },
    verb: (held, { ref }) => stop(held, [{ ...ref, force: false, reason: 'worker' }]),
    call: ({ call, work, ref }) => call('POST', work(`/${ref.id}/stop`)),
    late: { status: 409 },
  },
];

for (const { name, stage, verb, call, late } of BESIDE) {
  t.test(`a ${name} that waits for a cancel finds the item stopped, and does not change it`, async (t) => {
    const place = await newServer(t, stage);
    const { database, ref } = place;
    const cancelled = await hold(t, database, (held) => cancelSession(held, ref.environmentId, 'session'));
    const waiting = call(place);
    await cancelled.untilBlocked();
    await cancelled.commit();
    t.match(await waiting, late);
    const row = await rowOf(database, ref.id);
    t.match(row, { state: 'stopped', stop_reason: 'cancelled', lease_expires_at: null });
    t.match(await call(place), late, 'nor later');
    t.same(await rowOf(database, ref.id), row);
  });

  t.test(`a cancel that waits for a ${name} stops what that left`, async (t) => {
    const place = await newServer(t, stage);
    const { database, ref, cancel } = place;
    const acted = await hold(t, database, (held) => verb(held, place));
    const waiting = cancel('session');
    await acted.untilBlocked();
    await acted.commit();
    const { json } = await waiting;
    t.match(json.data, [{ id: ref.id, state: 'stopped' }]);
    t.equal(json.data.length, 1);
    t.match(await rowOf(database, ref.id), { state: 'stopped', stop_reason: 'cancelled', lease_expires_at: null });
  });
}

t.test('a poll passes over what is being cancelled, and gets nothing of it afterwards', async (t) => {
  const { database, ref, call, work } = await newServer(t, 'reserved');
  await lapse(database, ref.id);
  const cancelled = await hold(t, database, (held) => cancelSession(held, ref.environmentId, 'session'));
  t.equal((await call('GET', work('/poll'))).json, null);
  await cancelled.commit();
  t.equal((await call('GET', work('/poll'))).json, null);
});

t.test('a cancel that waits for a poll stops the item under its new id', async (t) => {
  const { database, ref, cancel, call, work } = await newServer(t, 'active');
  await lapse(database, ref.id);
  const polled = await hold(t, database, (held) => poll(held, ref.environmentId, [taker], lookOf(null)));
  const id = polled.answer.handOuts[0]?.item.id;
  const waiting = cancel('session');
  await polled.untilBlocked();
  await polled.commit();
  t.match((await waiting).json.data, [{ id, state: 'stopped' }]);
  t.not(id, ref.id);
  t.equal((await call('POST', work(`/${ref.id}/ack`))).status, 404);
});

/** What frees the slot and leaves a successor that a cancel which has begun cannot see. */
const ENDS: Record<string, (held: Database, place: Placed) => Promise<unknown>> = {
  stop: (held, { ref }) => stop(held, [{ ...ref, force: true, reason: 'worker' }]),
  'stop that winds down': (held, { ref }) => stop(held, [{ ...ref, force: false, reason: 'worker' }]),
  'poll that sets aside': (held, { ref }) => poll(held, ref.environmentId, [taker], lookOf(1)),
  'sweep that sets aside': (held) => sweep(held, { maxHandOuts: 1 }),
};
for (const [name, end] of Object.entries(ENDS)) {
  t.test(`a cancel that waits for a ${name} stops the successor, too`, async (t) => {
    const place = await newServer(t, 'active');
    const { database, ref, cancel, items } = place;
    await enqueue(database, followed(place));
    if (name.includes('aside')) await lapse(database, ref.id, 9);
    const ended = await hold(t, database, (held) => end(held, place));
    const waiting = cancel('session');
    await ended.untilBlocked();
    await ended.commit();
    t.equal((await waiting).status, 200);
    const all = await items();
    const reason = { stop: 'worker', 'stop that winds down': 'cancelled' }[name] ?? 'exhausted';
    t.match(all, [
      { state: 'stopped', reason },
      { state: 'stopped', reason: 'cancelled' },
    ]);
    t.equal(all.length, 2);
  });
}

t.test('a cancel drops the follow-up that it waits for; one that waits for a cancel is new work', async (t) => {
  const place = await newServer(t, 'active');
  const { database, ref, cancel, enqueue: ask, items } = place;
  const asked = await hold(t, database, (held) => enqueue(held, followed(place)));
  const waiting = cancel('session');
  await asked.untilBlocked();
  await asked.commit();
  await waiting;
  t.match(await items(), [{ state: 'stopped', reason: 'cancelled' }]);

  t.equal((await ask('session')).status, 201);
  const cancelled = await hold(t, database, (held) => cancelSession(held, ref.environmentId, 'session'));
  const next = ask('session', { follow_up: true });
  await cancelled.untilBlocked();
  await cancelled.commit();
  t.equal((await next).status, 201);
  t.strictSame(
    (await items()).map(({ state }) => state),
    ['stopped', 'stopped', 'queued'],
  );
});

for (const end of ['commit', 'rollback'] as const) {
  t.test(`an item that is put back twice at once is put back once; ${end}`, async (t) => {
    const { database, ref, items, call, work, requeue, enqueue: ask } = await newServer(t, 'active');
    await lapse(database, ref.id);
    t.equal((await call('GET', work('/poll'))).json, null);
    const first = await hold(t, database, (held) => requeueSetAside(held, ref));
    const second = requeue(ref.id);
    const covered = ask('session');
    await first.untilBlocked(2);
    await first[end]();
    const { status } = await second;
    // Afterwards whoever comes first has the slot: the one put back again, or the new one.
    const { status: asked } = await covered;
    t.strictSame([status, asked].toSorted(), end === 'commit' ? [200, 409] : asked === 200 ? [200, 201] : [201, 409]);
    t.match(await items(), [{ reason: 'exhausted' }, { state: 'queued' }]);
    t.equal((await items()).length, 2);
  });

  t.test(`what is put back waits for its environment that is being deleted; ${end}`, async (t) => {
    const { database, ref, call, work, requeue, items } = await newServer(t, 'active');
    await lapse(database, ref.id);
    await call('GET', work('/poll'));
    const deleted = await hold(t, database, (held) => deleteEnvironment(held, ref.environmentId));
    const waiting = requeue(ref.id);
    await deleted.untilBlocked();
    await deleted[end]();
    t.equal((await waiting).status, end === 'commit' ? 404 : 201);
    t.equal((await items()).length, end === 'commit' ? 0 : 2);
  });

  t.test(`what is put back waits for a new item of its session; ${end}`, async (t) => {
    const { database, ref, call, work, requeue, items } = await newServer(t, 'active');
    await lapse(database, ref.id);
    await call('GET', work('/poll'));
    const request = { environmentId: ref.environmentId, sessionId: 'session' };
    const asked = await hold(t, database, (held) => enqueue(held, request));
    const waiting = requeue(ref.id);
    await asked.untilBlocked();
    await asked[end]();
    t.equal((await waiting).status, end === 'commit' ? 409 : 201);
    t.match(await items(), [{ reason: 'exhausted' }, { state: 'queued' }]);
    t.equal((await items()).length, 2);
  });
}
