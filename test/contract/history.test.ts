import { sql } from 'kysely';
import t from 'tap';
import { rfc3339 } from '../../src/db/sql.ts';
import { ENGINES, lapse, OPERATOR_KEY, rowOf, testServer } from '../support/harness.ts';
import { ITEM_CALLS, newPlace, type Place, sessionsTokenOf, setLease } from '../support/places.ts';
import { checkRefusal } from '../support/wire.ts';

/** Lets the lease run out so long ago that the sweep takes the item; answers when that was. */
async function lapsedLongAgo(place: Place, id: string): Promise<string> {
  const { workItems } = place.database.names;
  await setLease(place, id, -60);
  const [row] = await place.database.rows(
    sql<{ at: string }>`select ${rfc3339(sql`w.lease_expires_at`)} as at from ${workItems} w where w.id = ${id}`,
  );
  return row?.at ?? '';
}

for (const engine of ENGINES) {
  t.test(engine, async (t) => {
    const server = await testServer(t, { engine, settings: { reclaimOlderThanMs: 600_000 } });
    const { queue } = server;
    const ask = ({ environment }: Place, id: string) =>
      server.call('GET', `/control/v1/environments/${environment.id}/work/${id}/history`, { as: OPERATOR_KEY });
    const handOutsOf = async (place: Place, id: string) => (await ask(place, id)).json.hand_outs;
    const NOTHING = { acknowledged_at: null, started_at: null, last_heartbeat_at: null };

    /** An item that somebody holds and beats for. */
    const active = async (place: Place) => {
      await place.enqueue();
      const { id } = (await place.poll('', { headers: { 'anthropic-worker-id': 'one' } })).json;
      const acked = (await place.ack(id)).json;
      const first = (await place.beat(id, 'NO_HEARTBEAT')).json.last_heartbeat;
      const last = (await place.beat(id, first)).json.last_heartbeat;
      const { started_at } = (await place.retrieve(id)).json;
      return { id, acknowledged_at: acked.acknowledged_at, started_at, last_heartbeat_at: last };
    };

    const reachedOf = ({ acknowledged_at, started_at, last_heartbeat_at }: Record<string, string | null>) => ({
      ...{ acknowledged_at, started_at, last_heartbeat_at },
    });

    for (const swept of [false, true]) {
      t.test(`a hand-out that lapsed is kept as far as it came, ${swept ? 'swept' : 'polled'} away`, async (t) => {
        const place = await newPlace(server);
        const { id, ...reached } = await active(place);
        t.match(await handOutsOf(place, id), [{ ...reached, lapsed_at: null, ended_at: null, outcome: null }]);
        const lapsed_at = await lapsedLongAgo(place, id);
        if (swept) {
          await queue.sweep();
          t.equal((await rowOf(place.database, id)).state, 'queued', 'the sweep has put it back');
        }
        const before = await handOutsOf(place, id);
        t.match(before, [{ ...reached, lapsed_at, ended_at: null, outcome: null }], 'it goes on, lapsed');

        const again = (await place.poll()).json.id;
        t.not(again, id);
        const [first, second] = await handOutsOf(place, again);
        const { handed_out_at } = before[0];
        t.match(first.ended_at, /Z$/);
        t.strictSame(first, {
          work_id: id,
          worker_id: 'one',
          handed_out_at,
          ...reached,
          lapsed_at,
          ended_at: first.ended_at,
          outcome: 'lease_lapsed',
        });
        t.strictSame(reachedOf(second), NOTHING, 'the next one is told of itself alone');
        t.match(second, { work_id: again, worker_id: null, lapsed_at: null, ended_at: null, outcome: null });

        await lapsedLongAgo(place, again);
        t.not((await place.poll()).json.id, again);
        t.strictSame(reachedOf((await handOutsOf(place, id))[1]), NOTHING, 'also once it is superseded');
      });
    }

    t.test('a late ack goes on with the same hand-out: its first ack and start, its last heartbeat', async (t) => {
      const place = await newPlace(server);
      const { id, ...reached } = await active(place);
      await lapsedLongAgo(place, id);
      await queue.sweep();
      t.equal((await place.ack(id)).status, 200);
      t.match(await handOutsOf(place, id), [{ ...reached, lapsed_at: null, outcome: null }], 'its lease is live again');
      await lapsedLongAgo(place, id);
      await queue.sweep();
      t.equal((await place.ack(id)).status, 200);
      const { last_heartbeat } = (await place.beat(id, 'NO_HEARTBEAT')).json;
      const lapsed_at = await lapsedLongAgo(place, id);
      const again = (await place.poll()).json.id;
      const [first, ...others] = await handOutsOf(place, again);
      t.match(first, {
        work_id: id,
        ...reached,
        last_heartbeat_at: last_heartbeat,
        lapsed_at,
        outcome: 'lease_lapsed',
      });
      t.equal(others.length, 1);
    });

    for (const swept of [false, true]) {
      t.test(`what began and was acked once more has lapsed at work, ${swept ? 'swept' : 'polled'} away`, async (t) => {
        const place = await newPlace(server);
        const { id, ...reached } = await active(place);
        await lapsedLongAgo(place, id);
        await queue.sweep();
        await place.ack(id);
        const lapsed_at = await lapsedLongAgo(place, id);
        if (swept) await queue.sweep();
        const again = (await place.poll()).json.id;
        const [first] = await handOutsOf(place, again);
        t.match(first, { work_id: id, ...reached, lapsed_at });
        t.equal(first.outcome, 'lease_lapsed'); // a match would take startup_lease_lapsed for it
        await lapsedLongAgo(place, again);
        const third = (await place.poll()).json.id;
        t.equal((await handOutsOf(place, third))[1].outcome, 'reservation_lapsed', 'and the next one has not');
      });
    }

    t.test('a reservation lapses at its end, one that was given back early never does', async (t) => {
      const place = await newPlace(server);
      await place.enqueue();
      const first = (await place.poll()).json.id;
      const lapsed_at = await lapsedLongAgo(place, first);
      const second = (await place.poll()).json.id;
      await setLease(place, second, null);
      const third = (await place.poll()).json.id;
      t.match(await handOutsOf(place, third), [
        { work_id: first, ...NOTHING, lapsed_at, outcome: 'reservation_lapsed' },
        { work_id: second, ...NOTHING, lapsed_at: null, outcome: 'reservation_lapsed' },
        { work_id: third, ...NOTHING, lapsed_at: null, outcome: null },
      ]);
    });

    t.test('the end of an item ends its last hand-out, and the reason is its outcome', async (t) => {
      const place = await newPlace(server);
      const { id } = await active(place);
      await place.stop(id, { as: OPERATOR_KEY });
      t.match(await handOutsOf(place, id), [{ ended_at: null, outcome: null }], 'it winds down');
      await place.forceStop(id);
      const { work, hand_outs } = (await ask(place, id)).json;
      t.match(hand_outs, [{ work_id: id, ended_at: work.stopped_at, outcome: 'operator' }]);
      t.match(work, { id, state: 'stopped', stop_reason: 'operator' });
      t.equal(hand_outs.length, 1);
    });

    t.test('a swept hand-out lapsed also when its item is stopped, one that was acked again did not', async (t) => {
      const place = await newPlace(server);
      for (const late of [false, true]) {
        const { id } = await active(place);
        const lapsed_at = await lapsedLongAgo(place, id);
        await queue.sweep();
        if (late) await place.ack(id);
        await place.stop(id);
        t.match(
          await handOutsOf(place, id),
          [{ lapsed_at: late ? null : lapsed_at, outcome: 'worker' }],
          `late: ${late}`,
        );
      }
    });

    t.test('of more than 1,000 hand-outs the latest are told', async (t) => {
      const place = await newPlace(server);
      await place.enqueue();
      const { id } = (await place.poll()).json;
      const { handOuts } = place.database.names;
      const { seq } = await rowOf(place.database, id);
      await place.database.rows(sql`insert into ${handOuts} (work_id, item_seq, environment_id, handed_out_at, superseded_at, reason)
        select ${id} || '_' || n, ${String(seq)}::bigint, ${place.environment.id}, at, at, 'lease_lapsed'
        from generate_series(1, 1000) n, lateral (select clock_timestamp() - n * interval '1 minute') o(at)`);
      const told = await handOutsOf(place, id);
      t.equal(told.length, 1_000);
      t.equal(told[0].work_id, `${id}_999`);
      t.equal(told[999].work_id, id);
    });

    t.test('any id that an item ever had finds it, in both lanes, in its own environment alone', async (t) => {
      const [place, elsewhere] = [await newPlace(server), await newPlace(server)];
      const first = await place.enqueue('session');
      t.strictSame((await ask(place, first)).json.hand_outs, [], 'never handed out');
      await place.poll();
      await lapse(place.database, first);
      const second = (await place.poll()).json.id;
      const answers = [await ask(place, first), await ask(place, second)];
      t.strictSame(answers[0]?.json, answers[1]?.json);
      t.match(answers[0]?.json.work, { id: second, hand_out_count: 2, data: { id: 'session' } });
      for (const id of [first, second, 'work_unknown']) checkRefusal(t, await ask(elsewhere, id), 404, id);
      checkRefusal(t, await ask(place, 'work_%00'), 404, 'an id that cannot be');

      const environmentId = place.environment.id;
      const { item } = await queue.enqueue({ environmentId, sessionId: 'session', kind: 'model_turn' });
      t.match((await ask(place, item.id)).json.work, { id: item.id, lane: 'process', kind: 'model_turn' });
    });

    t.test('a superseded id is told by its present one to an API key, and to nobody else', async (t) => {
      const [place, elsewhere] = [await newPlace(server), await newPlace(server)];
      await place.enqueue();
      const polled = await place.poll();
      const old = polled.json.id;
      for (let n = 0; n < 2; n++) {
        await lapse(place.database, (await handOutsOf(place, old)).at(-1).work_id);
        await place.poll();
      }
      const present = (await ask(place, old)).json.work.id;
      for (const [name, call] of Object.entries(ITEM_CALLS)) {
        const told = await call(place, old, { as: OPERATOR_KEY });
        checkRefusal(t, told, 404, name);
        t.strictSame(told.json.error.details, { error_code: 'work_superseded', work_id: present }, name);
        t.notOk((await call(place, old)).json.error.details, `${name}, an environment key`);
        const unknown = await call(place, 'work_unknown', { as: OPERATOR_KEY });
        t.notOk(unknown.json.error.details, `${name}, an id that never was`);
        t.notOk((await call(elsewhere, old, { as: OPERATOR_KEY })).json.error.details, `${name}, another environment`);
      }
      const byToken = await place.ack(old, { as: sessionsTokenOf(polled) });
      checkRefusal(t, byToken, 404, 'a sessions token');
      t.notOk(byToken.json.error.details);
    });
  });
}
