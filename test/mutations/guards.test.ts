import { sql } from 'kysely';
import t, { type Test } from 'tap';
import { createEnvironment } from '../../src/control/environments.ts';
import type { Database } from '../../src/db/connect.ts';
import { ack } from '../../src/queue/ack.ts';
import { enqueue } from '../../src/queue/enqueue.ts';
import { only } from '../../src/queue/errors.ts';
import { heartbeat, NO_HEARTBEAT } from '../../src/queue/heartbeat.ts';
import type { WorkRef } from '../../src/queue/items.ts';
import { patchMetadata } from '../../src/queue/metadata.ts';
import { poll } from '../../src/queue/poll.ts';
import { prune } from '../../src/queue/prune.ts';
import { putBack } from '../../src/queue/put-back.ts';
import { DEFAULT_SETTINGS } from '../../src/queue/settings.ts';
import { recordSightings } from '../../src/queue/sightings.ts';
import { stop } from '../../src/queue/stop.ts';
import { sweep } from '../../src/queue/sweep.ts';
import { lapse, rowOf, testClient, testDatabase, until } from '../support/harness.ts';
import { hold, holdRow } from '../support/interleave.ts';

const LOOK = { ...DEFAULT_SETTINGS, minQueuedAgeMs: 0 };

/** What the mutation check found that no other suite would have missed, on the verbs themselves. */
type Background = (database: Database, settings: typeof DEFAULT_SETTINGS) => Promise<object>;
const SWEPT_NOTHING = { finalised: 0, requeued: 0, setAside: 0, topics: [], more: false };

type Place = { database: Database; environmentId: string };

async function newPlace(t: Test): Promise<Place> {
  const database = await testDatabase(t);
  const { id } = await createEnvironment(database, { name: 'guards', type: 'self_hosted' });
  return { database, environmentId: id };
}

/** As many items as asked for, moved to where a test wants them. */
async function items({ database, environmentId }: Place, count: number, columns: string): Promise<string[]> {
  const rows = await database.rows(sql<{ id: string }>`
    insert into ${database.names.workItems} as w (id, environment_id, session_id, kind, lane, state)
    select 'work_' || n, ${environmentId}, n::text, 'tool_exec', 'wire', 'queued' from generate_series(1, ${count}::integer) n
    returning w.id`);
  await database.rows(sql`update ${database.names.workItems} set ${sql.raw(columns)}`);
  return rows.map((row) => row.id);
}

const LAPSED = "lease_expires_at = clock_timestamp() - interval '1 minute'";
const finishedDaysAgo = (days: number) => `state = 'stopped', stopped_at = clock_timestamp() - interval '${days} days'`;

/** What may be handed out once, and was. */
const SPENT = `max_hand_outs = 1, hand_out_count = 1, ${LAPSED}`;

const BOUNDED: readonly [
  does: string,
  run: Background,
  counted: string,
  columns: string,
  nothing: object,
  atMost: number,
][] = [
  ['finalises', sweep, 'finalised', `state = 'stopping', ${LAPSED}`, SWEPT_NOTHING, 500],
  ['puts back', sweep, 'requeued', `state = 'active', ${LAPSED}`, SWEPT_NOTHING, 500],
  ['sets aside active', sweep, 'setAside', `state = 'active', ${SPENT}`, SWEPT_NOTHING, 500],
  ['sets aside queued', sweep, 'setAside', `is_last_hand_out = true, ${SPENT}`, SWEPT_NOTHING, 500],
  ['prunes', prune, 'pruned', finishedDaysAgo(8), { pruned: 0, more: false }, 50],
];

for (const [does, run, counted, columns, nothing, atMost] of BOUNDED) {
  t.test(`a sweep ${does} at most ${atMost} items, says that there are more, and the next one goes on`, async (t) => {
    const place = await newPlace(t);
    await items(place, atMost + 1, columns);
    t.match(await run(place.database, DEFAULT_SETTINGS), { [counted]: atMost, more: true });
    t.match(await run(place.database, DEFAULT_SETTINGS), { [counted]: 1, more: false });
  });

  t.test(`a sweep ${does} what is free while somebody holds a row`, async (t) => {
    const place = await newPlace(t);
    const [held = ''] = await items(place, 3, columns);
    const holder = await holdRow(t, place.database, held);
    t.match(await run(place.database, DEFAULT_SETTINGS), { [counted]: 2 });
    await holder.rollback();
    t.match(await run(place.database, DEFAULT_SETTINGS), { [counted]: 1 });
  });

  t.test(`a sweep that has not got the turn ${does} nothing`, async (t) => {
    const place = await newPlace(t);
    const first = await hold(t, place.database, (held) => run(held, DEFAULT_SETTINGS));
    const [id = ''] = await items(place, 1, columns);
    const before = await rowOf(place.database, id);
    t.same(await run(place.database, DEFAULT_SETTINGS), nothing);
    t.same(await rowOf(place.database, id), before);
    await first.rollback();
    t.match(await run(place.database, DEFAULT_SETTINGS), { [counted]: 1 });
  });
}

t.test('pruning removes what has been finished for the retention time, and nothing else', async (t) => {
  const place = await newPlace(t);
  await items(place, 2, finishedDaysAgo(8));
  await place.database.rows(sql`
    update ${place.database.names.workItems} set stopped_at = clock_timestamp() - interval '6 days' where id = 'work_2'`);
  t.match(await prune(place.database, DEFAULT_SETTINGS), { pruned: 1 });
  await t.rejects(rowOf(place.database, 'work_1'));
  t.match(await rowOf(place.database, 'work_2'), { state: 'stopped' });
});

t.test('a worker is forgotten an hour after it was seen, by the pruning that has the turn', async (t) => {
  const { database, environmentId } = await newPlace(t);
  const seen = async () =>
    (
      await database.rows(
        sql<{ worker: string }>`select worker_id as worker from ${database.names.workerSightings} order by worker_id`,
      )
    ).map(({ worker }) => worker);
  const first = await hold(t, database, (held) => prune(held, DEFAULT_SETTINGS));
  await recordSightings(database, [
    { environmentId, workerId: 'gone', ageMs: 3_700_000 },
    { environmentId, workerId: 'here', ageMs: 3_500_000 },
  ]);
  await prune(database, DEFAULT_SETTINGS);
  t.same(await seen(), ['gone', 'here']);
  await first.rollback();
  await prune(database, DEFAULT_SETTINGS);
  t.same(await seen(), ['here']);
});

t.test('a worker seen in an environment that does not exist is passed over, its neighbours are recorded', async (t) => {
  const { database, environmentId } = await newPlace(t);
  await recordSightings(database, [
    { environmentId: 'env_nowhere', workerId: 'lost', ageMs: 0 },
    { environmentId, workerId: 'found', ageMs: 0 },
  ]);
  const seen = await database.rows(
    sql`select environment_id as env, worker_id as worker from ${database.names.workerSightings}`,
  );
  t.same(seen, [{ env: environmentId, worker: 'found' }]);
});

const CALLS: Record<string, (database: Database, ref: WorkRef) => Promise<unknown>> = {
  ack: async (database, ref) => only(await ack(database, [{ ...ref }], DEFAULT_SETTINGS)),
  heartbeat: async (database, ref) =>
    only(
      await heartbeat(
        database,
        [{ ...ref, expectedLastHeartbeat: NO_HEARTBEAT, desiredTtlSeconds: 60, isRetry: false }],
        DEFAULT_SETTINGS,
      ),
    ),
  stop: async (database, ref) => only(await stop(database, [{ ...ref, force: true, reason: 'worker' }])),
  'metadata patch': (database, ref) => patchMetadata(database, ref, {}),
};

for (const [name, call] of Object.entries(CALLS)) {
  t.test(`a ${name} tells that an id was superseded of that id alone, and in its own environment alone`, async (t) => {
    const { database, environmentId } = await newPlace(t);
    const { id: elsewhere } = await createEnvironment(database, { name: 'elsewhere', type: 'self_hosted' });
    const { item } = await enqueue(database, { environmentId, sessionId: 'session' });
    const taker = { workerId: null, reclaimOlderThanMs: 60_000 };
    await poll(database, environmentId, [taker], LOOK);
    await lapse(database, item.id);
    await poll(database, environmentId, [taker], LOOK);
    const refusal = (id: string, environment: string) => call(database, { id, environmentId: environment });
    await t.rejects(refusal(item.id, environmentId), { code: 'not_found', message: /handed out again/ });
    await t.rejects(refusal(item.id, elsewhere), { code: 'not_found', message: /was not found/ });
    await t.rejects(refusal('work_never', environmentId), { code: 'not_found', message: /was not found/ });
  });
}

t.test('a session that is live in two environments is covered, in each, by its own item', async (t) => {
  const { database, environmentId } = await newPlace(t);
  const { id: elsewhere } = await createEnvironment(database, { name: 'elsewhere', type: 'self_hosted' });
  for (const id of [environmentId, elsewhere]) await enqueue(database, { environmentId: id, sessionId: 'session' });
  for (const id of [environmentId, elsewhere]) {
    const covered = await enqueue(database, { environmentId: id, sessionId: 'session' });
    t.match(covered, { created: false, item: { environmentId: id } });
  }
});

t.test(
  'enqueue itself tells other replicas only of a new item in a caller transaction, by whom it is for',
  async (t) => {
    const { database, environmentId } = await newPlace(t);
    const [caller, listener] = [await testClient(t), await testClient(t)];
    const told: (string | undefined)[] = [];
    listener.on('notification', ({ payload }) => told.push(payload));
    await listener.query(`listen ${database.channel}`);
    const session = (sessionId: string) => ({ environmentId, sessionId });
    await enqueue(database, session('without a transaction'));
    await enqueue(database, session('without a transaction'), caller);
    await enqueue(database, { ...session('of the process lane'), kind: 'model_turn' });
    await listener.query(`select pg_notify($1, 'before')`, [database.channel]);
    await enqueue(database, session('new, in a transaction'), caller);
    await enqueue(database, { ...session('new, in a transaction'), kind: 'model_turn' }, caller);
    await listener.query(`select pg_notify($1, 'after')`, [database.channel]);
    await until('all was told', () => told.includes('after'));
    t.same(told, ['before', environmentId, 'kind:model_turn', 'after']);
  },
);

t.test('metadata is patched under its own environment alone', async (t) => {
  const { database, environmentId } = await newPlace(t);
  const { item } = await enqueue(database, { environmentId, sessionId: 'session' });
  const other = await createEnvironment(database, { name: 'other', type: 'self_hosted' });
  const before = await rowOf(database, item.id);
  const patched = patchMetadata(database, { environmentId: other.id, id: item.id }, { a: 'b' });
  await t.rejects(patched, { code: 'not_found' });
  t.strictSame(await rowOf(database, item.id), before);
});

for (const unseen of [true, false]) {
  t.test(
    `a put-back (unseen ${unseen}) of an item that was acked and swept back to queued leaves it alone`,
    async (t) => {
      const { database, environmentId } = await newPlace(t);
      const { item } = await enqueue(database, { environmentId, sessionId: 'session' });
      const taker = { workerId: 'worker', reclaimOlderThanMs: 60_000 };
      const {
        handOuts: [handOut],
      } = await poll(database, environmentId, [taker], LOOK);
      only(await ack(database, [{ environmentId, id: item.id }], DEFAULT_SETTINGS));
      await lapse(database, item.id, 10);
      await sweep(database, DEFAULT_SETTINGS);
      const before = await rowOf(database, item.id);
      t.match(before, { state: 'queued' });
      t.equal(await putBack(database, handOut?.sessionsToken ?? '', unseen), false);
      t.same(await rowOf(database, item.id), before);
      const {
        handOuts: [again],
      } = await poll(database, environmentId, [taker], LOOK);
      t.not(again?.item.id, item.id, 'who acked knows the id, so it is not given to another');
    },
  );

  const outcome = unseen ? 'undoes the hand-out' : 'ends the reservation and nothing else';
  t.test(`a put-back (unseen ${unseen}) ${outcome}`, async (t) => {
    const { database, environmentId } = await newPlace(t);
    const { item } = await enqueue(database, { environmentId, sessionId: 'session' });
    const enqueued = await rowOf(database, item.id);
    const {
      handOuts: [handOut],
    } = await poll(database, environmentId, [{ workerId: 'worker', reclaimOlderThanMs: 60_000 }], LOOK);
    const handedOut = await rowOf(database, item.id);
    t.equal(await putBack(database, handOut?.sessionsToken ?? '', unseen), true);
    t.same(await rowOf(database, item.id), unseen ? enqueued : { ...handedOut, lease_expires_at: null });
  });
}
