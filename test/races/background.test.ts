import { sql } from 'kysely';
import t from 'tap';
import { ack } from '../../src/queue/ack.ts';
import { heartbeat } from '../../src/queue/heartbeat.ts';
import { putBack } from '../../src/queue/put-back.ts';
import { DEFAULT_SETTINGS } from '../../src/queue/settings.ts';
import { sweep } from '../../src/queue/sweep.ts';
import { lapse, rowOf, testServer } from '../support/harness.ts';
import { beat, hold, holding, replicas } from '../support/interleave.ts';

/** Past the patience that the sweep has with late heartbeats. */
const LONG_LAPSED_SECONDS = 10;

for (const unseen of [true, false]) {
  t.test(`an ack that waits for a put-back (unseen ${unseen}) starts the item, as it is queued`, async (t) => {
    const server = await testServer(t);
    const { database, call, work } = server;
    const { id, sessionsToken } = await holding(server, 'session', 'reserved');
    const back = await hold(t, database, (held) => putBack(held, sessionsToken, unseen));
    t.equal(back.answer, true);
    const acked = call('POST', work(`/${id}/ack`));
    await back.untilBlocked();
    await back.commit();
    t.match(await acked, { status: 200, json: { id, state: 'starting' } });
    t.equal((await call('GET', work('/poll'))).json, null, 'the startup lease is live');
  });

  t.test(`a put-back (unseen ${unseen}) that waits for an ack leaves the acked item alone`, async (t) => {
    const server = await testServer(t);
    const { database, environment, queue, call, work } = server;
    const { id, sessionsToken } = await holding(server, 'session', 'reserved');
    const item = await queue.retrieve({ environmentId: environment.id, id });
    const acked = await hold(t, database, async (held) => {
      await ack(held, [{ environmentId: environment.id, id }], DEFAULT_SETTINGS);
      return rowOf(held, id);
    });
    const row = acked.answer;
    const back = queue.putBack({ item, sessionsToken }, unseen);
    await acked.untilBlocked();
    await acked.commit();
    t.equal(await back, false);
    t.same(await rowOf(database, id), row);
    t.match(row, { state: 'starting', hand_out_count: 1 });
    t.equal((await call('GET', work('/poll'))).json, null);
  });

  t.test(`a put-back (unseen ${unseen}) of a hand-out that was superseded does nothing`, async (t) => {
    const server = await testServer(t);
    const { database, environment, queue, call, work } = server;
    const { id, sessionsToken } = await holding(server, 'session', 'reserved');
    const item = await queue.retrieve({ environmentId: environment.id, id });
    await lapse(database, id);
    const fresh = (await call('GET', work('/poll'))).json.id;
    const row = await rowOf(database, fresh);
    t.equal(await queue.putBack({ item, sessionsToken }, unseen), false);
    t.same(await rowOf(database, fresh), row);
    t.equal((await call('GET', work('/poll'))).json, null, 'its reservation is still live');
    t.equal((await queue.stats(environment.id)).pending, 1);
  });
}

t.test('a put-back that comes again does nothing to the next hand-out of the same id', async (t) => {
  const server = await testServer(t);
  const { database, environment, queue } = server;
  const id = await server.enqueue('session');
  const first = await queue.poll({ environmentId: environment.id });
  if (first === null) throw new Error('nothing was handed out');
  t.equal(await queue.putBack(first, true), true);
  t.equal((await queue.poll({ environmentId: environment.id }))?.item.id, id, 'nobody saw the id: it stays');
  const row = await rowOf(database, id);
  t.equal(await queue.putBack(first, true), false);
  t.equal(await queue.putBack(first, false), false);
  t.same(await rowOf(database, id), row);
});

for (const stage of ['starting', 'active'] as const) {
  t.test(`a heartbeat (${stage}) that waits for the sweep is refused: the item is queued again`, async (t) => {
    const server = await testServer(t);
    const { database, call, work } = server;
    const { id, heartbeat: token } = await holding(server, 'session', stage);
    await lapse(database, id, LONG_LAPSED_SECONDS);
    const swept = await hold(t, database, async (held) => {
      t.equal((await sweep(held, DEFAULT_SETTINGS)).requeued, 1);
      return rowOf(held, id);
    });
    const row = swept.answer;
    const beaten = beat(server, id, token);
    await swept.untilBlocked();
    await swept.commit();
    const { status, json } = await beaten;
    t.equal(status, 412);
    t.match(json.error.details.current_state, { state: 'queued', last_heartbeat: null, lease_extended: false });
    t.same(await rowOf(database, id), row);
    const again = (await call('GET', work('/poll'))).json;
    t.not(again.id, id, 'handed out again under a new id');
  });

  t.test(`the sweep passes by a lapsed item (${stage}) that a heartbeat is saving`, async (t) => {
    const server = await testServer(t);
    const { database, environment, call, work } = server;
    const { id, heartbeat: token } = await holding(server, 'session', stage);
    await lapse(database, id, LONG_LAPSED_SECONDS);
    const beaten = await hold(t, database, (held) =>
      heartbeat(
        held,
        [{ environmentId: environment.id, id, expectedLastHeartbeat: token, desiredTtlSeconds: 60, isRetry: false }],
        DEFAULT_SETTINGS,
      ),
    );
    t.match(beaten.answer, [{ leaseExtended: true }]);
    t.equal((await sweep(database, DEFAULT_SETTINGS)).requeued, 0, 'while it is being saved');
    await beaten.commit();
    t.equal((await sweep(database, DEFAULT_SETTINGS)).requeued, 0, 'once it is saved');
    t.match((await call('GET', work(`/${id}`))).json, { id, state: 'active' });
  });
}

t.test('a second sweep leaves everything to the one under way, and a later one finds nothing left', async (t) => {
  const server = await testServer(t);
  const { database } = server;
  const stopping = await holding(server, 'stopping', 'stopping');
  const active = await holding(server, 'active', 'active');
  const left = await holding(server, 'left', 'active');
  for (const { id } of [stopping, active]) await lapse(database, id, LONG_LAPSED_SECONDS);
  const first = await hold(t, database, (held) => sweep(held, DEFAULT_SETTINGS));
  t.match(first.answer, { finalised: 1, requeued: 1 });
  // Lapsed after the first one looked: the second would find it, had it the turn.
  await lapse(database, left.id, LONG_LAPSED_SECONDS);
  const idle = { finalised: 0, requeued: 0, setAside: 0, topics: [], more: false };
  t.same(await sweep(database, DEFAULT_SETTINGS), idle);
  await first.commit();
  t.match(await sweep(database, DEFAULT_SETTINGS), { finalised: 0, requeued: 1 });
  t.same(await sweep(database, DEFAULT_SETTINGS), idle);
});

t.test('8 replicas that sweep at once do each thing once', async (t) => {
  const server = await testServer(t);
  const { database, environment } = server;
  const others = await replicas(t, database, 8);
  const ids: string[] = [];
  for (let n = 0; n < 6; n++) {
    ids.push((await holding(server, `session-${n}`, n % 2 === 0 ? 'stopping' : 'active')).id);
  }
  for (const id of ids) await lapse(database, id, LONG_LAPSED_SECONDS); // only now: each poll finalises, too
  const swept = await Promise.all(others.map((replica) => sweep(replica.database, DEFAULT_SETTINGS)));
  t.equal(
    swept.reduce((sum, { finalised }) => sum + finalised, 0),
    3,
  );
  t.equal(
    swept.reduce((sum, { requeued }) => sum + requeued, 0),
    3,
  );
  const states = await database.rows(sql<{ state: string; n: number }>`
    select state, count(*)::integer as n from ${database.names.workItems}
    where environment_id = ${environment.id} group by state order by state`);
  t.same(states, [
    { state: 'queued', n: 3 },
    { state: 'stopped', n: 3 },
  ]);
});
