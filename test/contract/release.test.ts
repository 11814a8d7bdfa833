import { sql } from 'kysely';
import t from 'tap';
import { introspect } from '../../src/control/introspect.ts';
import { ENGINES, lapse, OPERATOR_KEY, rowOf, testServer } from '../support/harness.ts';
import { type Bench, type Held, newBench } from '../support/held.ts';
import { type RowName, rowBySeq, setLease } from '../support/places.ts';
import { checkRefusal } from '../support/wire.ts';

const LIVE: readonly RowName[] = ['queued, reservation live', 'starting, lease live', 'active, lease live'];
const QUEUED = { status: 200, json: { type: 'work_release', state: 'queued' } };
const STOPPED = { status: 200, json: { type: 'work_release', state: 'stopped' } };

for (const engine of ENGINES) {
  t.test(engine, async (t) => {
    // What is handed out stays so, however slow the machine.
    const server = await testServer(t, { engine, settings: { reclaimOlderThanMs: 600_000 } });
    const { database } = server;

    for (const row of LIVE) {
      t.test(`an item (${row}) that is given back is queued under a new id, as if never handed out`, async (t) => {
        const { enqueue, environment, holder, take, poll, retrieve, history } = await newBench(server);
        await enqueue('session', { priority: 3, metadata: { team: 'tools' } });
        await enqueue('neighbour');
        const held = await take(row);
        const neighbour = await take();
        const [before, beside] = [await rowOf(database, held.id), await rowOf(database, neighbour.id)];
        t.match(await holder(held).release(), QUEUED);
        const after = await rowBySeq(database, before.seq);
        t.same(after, {
          ...before,
          ...{ id: after.id, state: 'queued', hand_out_count: 0, handed_out_at: null, worker_id: null },
          ...{ sessions_token_hash: null, lease_expires_at: null, lease_ttl_seconds: null, last_heartbeat: null },
          ...{ acknowledged_at: null, started_at: null, replaced_heartbeat: null },
        });
        t.not(after.id, held.id);
        t.same(await rowOf(database, neighbour.id), beside, 'its neighbour is as it was');

        checkRefusal(t, await retrieve(held.id), 404, 'the old id');
        t.same(await introspect(database, held.sessionsToken), { isActive: false });
        const again = await poll();
        t.equal(again.json.id, after.id, 'handed out under the id that it has');
        const { hand_outs: handOuts } = await history(after.id ?? '');
        t.match(handOuts, [
          { work_id: held.id, outcome: 'released', lapsed_at: null, ended_at: String },
          { work_id: after.id, outcome: null, ended_at: null },
        ]);
        t.equal(handOuts[0].acknowledged_at === null, row === 'queued, reservation live');
        t.equal(handOuts[0].started_at === null, row !== 'active, lease live');
        t.equal(again.json.environment_id, environment.id);
      });
    }

    for (const [end, given] of [
      ['released', (held: Held, { holder }: Bench) => holder(held).release()],
      ['failed', (held: Held, { holder }: Bench) => holder(held).report({ status: 'failed' })],
    ] as const) {
      t.test(`what lapsed at work, was acked once more, and ${end}, is told as begun from its lapse on`, async (t) => {
        const bench = await newBench(server);
        const { enqueue, take, ack, input, history, place } = bench;
        await enqueue('session');
        const held = await take();
        const isReclaimed = async (id: string) => (await input(id)).json.is_reclaimed;
        t.equal(await isReclaimed(held.id), false);
        await setLease(place, held.id, -60);
        await server.queue.sweep();
        await ack(held.id);
        t.equal(await isReclaimed(held.id), true, 'to its holder, who may have been started anew');
        t.equal((await given(held, bench)).status, 200);
        const { names } = database;
        await database.rows(sql`update ${names.workItems} set not_before = null where environment_id = ${bench.id}`);
        const next = await take();
        t.equal(await isReclaimed(next.id), true, 'to the next one');
        t.match((await history(next.id)).hand_outs[0], { outcome: end, lapsed_at: String });
        t.equal((await given(next, bench)).status, 200);
        await database.rows(sql`update ${names.workItems} set not_before = null where environment_id = ${bench.id}`);
        t.equal(await isReclaimed((await take()).id), true, 'and to who comes after that');
      });
    }

    t.test(
      'the same again, its answer lost, is answered the same, also when another has the item by then',
      async (t) => {
        const { enqueue, holder, take, call } = await newBench(server);
        await enqueue('session');
        const held = await take();
        t.match(await holder(held).release(), QUEUED);
        t.match(await holder(held).release(), QUEUED, 'queued');
        const other = await take();
        const row = await rowOf(database, other.id);
        t.match(await holder(held).release(60_000), QUEUED, 'held by another');
        t.match(await call('POST', `/${held.id}/release`, OPERATOR_KEY), QUEUED, 'for an operator, too');
        t.same(await rowOf(database, other.id), row, 'whose it stays');
        checkRefusal(t, await holder({ ...other, sessionsToken: held.sessionsToken }).release(), 403, "another's item");
      },
    );

    t.test(
      'hand-outs that were given back are not counted against the cap; the last one was not the last',
      async (t) => {
        const { enqueue, holder, take, poll, get } = await newBench(server);
        await enqueue('session', { max_hand_outs: 1 });
        for (let n = 0; n < 3; n++) t.match(await holder(await take()).release(), QUEUED);
        await server.queue.sweep();
        const held = await take();
        t.match(await rowOf(database, held.id), { hand_out_count: 1, is_last_hand_out: true, attempt: 1 });
        await lapse(database, held.id, 3);
        t.equal((await poll()).json, null);
        t.match((await get(`/${held.id}`)).json, { state: 'stopped' });
      },
    );

    t.test('what is given back for later is not handed out before, and then is', async (t) => {
      const { enqueue, holder, take, poll, items } = await newBench(server);
      await enqueue('session');
      t.match(await holder(await take()).release(86_400_000), QUEUED);
      t.equal((await poll()).json, null);
      const [{ id = '' } = {}] = await items();
      const [due] = await database.rows(sql<{ seconds: number }>`
        select extract(epoch from not_before - clock_timestamp())::float8 as seconds from ${database.names.workItems} where id = ${id}`);
      t.ok(due && Math.abs(due.seconds - 86_400) < 60, `due in ${due?.seconds} s`);
      await database.rows(sql`update ${database.names.workItems} set not_before = clock_timestamp() where id = ${id}`);
      t.equal((await poll()).json.id, id);
    });

    t.test('what was to end ends, for the reason that it was to, and its slot was free before', async (t) => {
      const { enqueue, holder, take, items } = await newBench(server);
      await enqueue('session');
      await enqueue('session', { follow_up: true });
      const held = await take('stopping, lease live');
      const before = await rowOf(database, held.id);
      t.match(await holder(held).release(5_000), STOPPED);
      const after = await rowOf(database, held.id);
      t.match(after.stopped_at, /^\d{4}-/);
      t.same(after, { ...before, state: 'stopped', stopped_at: after.stopped_at, lease_expires_at: null });
      t.match(await holder(held).release(), STOPPED, 'and again');
      t.same(await rowOf(database, held.id), after);
      t.match(await items(), [{ state: 'stopped' }, { state: 'queued' }], 'one follows it, from before');
    });

    for (const row of ['stopped, ever active', 'stopped, never acked'] as const) {
      t.test(`what has ended (${row}) stays as it is`, async (t) => {
        const { enqueue, holder, take } = await newBench(server);
        await enqueue('session');
        const held = await take(row);
        const before = await rowOf(database, held.id);
        t.match(await holder(held).release(), STOPPED);
        t.same(await rowOf(database, held.id), before);
      });
    }

    for (const row of LIVE) {
      t.test(
        `under a lease that has lapsed (${row}) nothing is given back, nor once another has the item`,
        async (t) => {
          const { enqueue, holder, take, call } = await newBench(server);
          await enqueue('neighbour');
          t.match(await holder(await take()).release(60_000), QUEUED, 'a neighbour');
          await enqueue('session');
          const held = await take(row);
          await lapse(database, held.id);
          const before = await rowOf(database, held.id);
          const refused = await holder(held).release();
          t.same(await rowOf(database, held.id), before);
          checkRefusal(t, refused, 412, 'lapsed');
          t.match(refused.json.error.details, { error_code: 'lease_lapsed', current_state: { state: before.state } });
          await lapse(database, held.id, 3);
          await server.queue.sweep();
          const swept = await rowOf(database, held.id);
          checkRefusal(t, await holder(held).release(), 412, 'swept');
          t.same(await rowOf(database, held.id), swept);
          const next = await take();
          const now = await rowOf(database, next.id);
          checkRefusal(t, await holder(held).release(), 404, 'superseded');
          checkRefusal(t, await call('POST', `/${held.id}/release`, OPERATOR_KEY), 404, 'superseded, for an operator');
          t.same(await rowOf(database, next.id), now);
        },
      );
    }

    t.test('the token of an earlier hand-out of the same id gives nothing back', async (t) => {
      const { enqueue, id, take, holder } = await newBench(server);
      await enqueue('session');
      const unseen = await server.queue.poll({ environmentId: id });
      if (unseen === null) throw new Error('nothing was handed out');
      await server.queue.putBack(unseen, true);
      const held = await take();
      t.equal(held.id, unseen.item.id);
      const before = await rowOf(database, held.id);
      await t.rejects(server.queue.release(unseen), { code: 'not_found' });
      await t.rejects(server.queue.reportOutcome(unseen, { status: 'succeeded' }), { code: 'not_found' });
      t.same(await rowOf(database, held.id), before);
      t.match(await holder(held).release(), QUEUED);
      await t.rejects(server.queue.release(unseen), { code: 'not_found' }, 'nor once that was given back');
    });

    t.test(
      'an operator may take an item back; an environment key may not, nor a neighbour, nor from elsewhere',
      async (t) => {
        const { enqueue, call, take, environment, items } = await newBench(server);
        const there = await newBench(server);
        await enqueue('session');
        await enqueue('neighbour');
        const [held, neighbour] = [await take(), await take()];
        const before = await rowOf(database, held.id);
        const path = `/${held.id}/release`;
        checkRefusal(t, await call('POST', path, server.environmentKey), 401, "another environment's key");
        const { key } = (
          await server.call('POST', `/control/v1/environments/${environment.id}/keys`, {
            ...{ as: OPERATOR_KEY, body: { name: 'more' } },
          })
        ).json;
        checkRefusal(t, await call('POST', path, key), 403, 'its environment key');
        checkRefusal(t, await call('POST', path, neighbour.sessionsToken), 403, "a neighbour's token");
        checkRefusal(t, await there.call('POST', path, OPERATOR_KEY), 404, 'another environment');
        for (const body of [{ delay_ms: -1 }, { delay_ms: 86_400_001 }, { delay_ms: 1.5 }, { delay: 1 }, []]) {
          checkRefusal(t, await call('POST', path, held.sessionsToken, { body }), 400, JSON.stringify(body));
        }
        t.same(await rowOf(database, held.id), before);
        t.match(await call('POST', path, OPERATOR_KEY), QUEUED);
        t.match(await items(), [
          { state: 'queued', session: 'session' },
          { id: neighbour.id, state: 'active' },
        ]);
        checkRefusal(t, await there.call('POST', path, OPERATOR_KEY), 404, 'given back, from another environment');
      },
    );

    t.test('what a process claimed is not a worker’s to give back or to judge, nor an operator’s', async (t) => {
      const { id: environmentId, call, database } = await newBench(server, 'cloud');
      const { item } = await server.queue.enqueue({ environmentId, sessionId: 'session', kind: 'model_turn' });
      if ((await server.queue.claim('model_turn', { ttlSeconds: 60 })) === null) throw new Error('nothing to claim');
      const before = await rowOf(database, item.id);
      t.match(before, { state: 'active' });
      checkRefusal(t, await call('POST', `/${item.id}/release`, OPERATOR_KEY), 404, 'release');
      const body = { status: 'succeeded' };
      checkRefusal(t, await call('PATCH', `/${item.id}`, OPERATOR_KEY, { body }), 404, 'outcome');
      t.same(await rowOf(database, item.id), before);
    });
  });
}
