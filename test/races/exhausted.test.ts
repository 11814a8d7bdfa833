import { sql } from 'kysely';
import t from 'tap';
import { changeSettings } from '../../src/control/settings.ts';
import type { Database } from '../../src/db/connect.ts';
import { ack } from '../../src/queue/ack.ts';
import { heartbeat } from '../../src/queue/heartbeat.ts';
import { poll } from '../../src/queue/poll.ts';
import { putBack } from '../../src/queue/put-back.ts';
import { DEFAULT_SETTINGS } from '../../src/queue/settings.ts';
import { stop } from '../../src/queue/stop.ts';
import { sweep } from '../../src/queue/sweep.ts';
import { lapse, rowOf, testServer } from '../support/harness.ts';
import { hold, replicas } from '../support/interleave.ts';
import { newPlace, sessionsTokenOf } from '../support/places.ts';

const LOOK = { ...DEFAULT_SETTINGS, minQueuedAgeMs: 0 };
const LONG_LAPSED_SECONDS = 10;
const STAGES = ['reserved', 'starting', 'active'] as const;
const taker = { workerId: null, reclaimOlderThanMs: 60_000 };
/** One for all, each test has an environment of its own: none leaves anything for a later sweep. */
const server = await testServer(t);
const { database } = server;

/** An item that was handed out as often as it may be, its last lease long lapsed. */
async function spent(stage: (typeof STAGES)[number]) {
  const place = await newPlace(server);
  const environmentId = place.environment.id;
  await changeSettings(database, environmentId, { maxHandOuts: 1 }, DEFAULT_SETTINGS);
  const id = await place.enqueue();
  const sessionsToken = sessionsTokenOf(await place.poll());
  let token = 'NO_HEARTBEAT';
  if (stage !== 'reserved') await place.ack(id);
  if (stage === 'active') token = (await place.beat(id, token)).json.last_heartbeat;
  await lapse(database, id, LONG_LAPSED_SECONDS);
  return { place, environmentId, id, sessionsToken, token };
}

type Exhaust = (database: Database, environmentId: string) => Promise<{ setAside: number }>;
const WAYS: Readonly<Record<string, Exhaust>> = {
  'a poll': (database, environmentId) => poll(database, environmentId, [taker], LOOK),
  'the sweep': (database) => sweep(database, DEFAULT_SETTINGS),
};

for (const stage of STAGES) {
  for (const [first, firstWay] of Object.entries(WAYS)) {
    for (const [second, secondWay] of Object.entries(WAYS)) {
      t.test(
        `an item (${stage}) that ${first} is setting aside is passed by ${second}, and set aside once`,
        async (t) => {
          const { environmentId, id } = await spent(stage);
          const winner = await hold(t, database, (held) => firstWay(held, environmentId));
          t.equal(winner.answer.setAside, 1);
          t.equal((await secondWay(database, environmentId)).setAside, 0, 'while it is being set aside');
          await winner.commit();
          const row = await rowOf(database, id);
          t.match(row, { state: 'stopped', stop_reason: 'exhausted' });
          t.equal((await secondWay(database, environmentId)).setAside, 0, 'once it is');
          t.strictSame(await rowOf(database, id), row);
        },
      );
    }

    t.test(`an item (${stage}) whose setting aside by ${first} was rolled back is set aside by the next`, async (t) => {
      const { environmentId, id } = await spent(stage);
      const before = await rowOf(database, id);
      const winner = await hold(t, database, (held) => firstWay(held, environmentId));
      await winner.rollback();
      t.strictSame(await rowOf(database, id), before);
      t.equal((await firstWay(database, environmentId)).setAside, 1);
    });
  }
}

for (const [name, way] of Object.entries(WAYS)) {
  for (const [stage, status] of [
    ['starting', 412],
    ['active', 200],
  ] as const) {
    t.test(`a heartbeat (${stage}) that waits while ${name} sets its item aside extends nothing`, async (t) => {
      const { place, environmentId, id, token } = await spent(stage);
      const exhausted = await hold(t, database, async (held) => {
        await way(held, environmentId);
        return rowOf(held, id);
      });
      const beaten = place.beat(id, token);
      await exhausted.untilBlocked();
      await exhausted.commit();
      const { status: answered, json } = await beaten;
      t.equal(answered, status);
      t.match(status === 200 ? json : json.error.details.current_state, { state: 'stopped', lease_extended: false });
      t.strictSame(await rowOf(database, id), exhausted.answer);
    });

    t.test(`${name} passes by a spent item (${stage}) that a heartbeat is saving, also once it is saved`, async (t) => {
      const { environmentId, id, token } = await spent(stage);
      const request = { environmentId, id, expectedLastHeartbeat: token, desiredTtlSeconds: 60, isRetry: false };
      const saved = await hold(t, database, (held) => heartbeat(held, [request], DEFAULT_SETTINGS));
      t.match(saved.answer, [{ leaseExtended: true }]);
      t.equal((await way(database, environmentId)).setAside, 0, 'while it is being saved');
      await saved.commit();
      t.equal((await way(database, environmentId)).setAside, 0, 'once it is saved');
      t.match(await rowOf(database, id), { state: 'active', stop_reason: null });
    });
  }

  t.test(`an ack that waits while ${name} sets its item aside is answered it as stopped`, async (t) => {
    const { place, environmentId, id } = await spent('reserved');
    const exhausted = await hold(t, database, async (held) => {
      await way(held, environmentId);
      return rowOf(held, id);
    });
    const acked = place.ack(id);
    await exhausted.untilBlocked();
    await exhausted.commit();
    t.match(await acked, { status: 200, json: { id, state: 'stopped' } });
    t.strictSame(await rowOf(database, id), exhausted.answer);
  });

  t.test(`${name} passes by a spent item that an ack is saving, also once it is saved`, async (t) => {
    const { environmentId, id } = await spent('reserved');
    const acked = await hold(t, database, (held) => ack(held, [{ environmentId, id }], DEFAULT_SETTINGS));
    t.equal((await way(database, environmentId)).setAside, 0, 'while it is being saved');
    await acked.commit();
    t.equal((await way(database, environmentId)).setAside, 0, 'once it is saved');
    t.match(await rowOf(database, id), { state: 'starting', stop_reason: null });
  });

  t.test(
    `a stop that waits while ${name} sets its item aside is a conflict; the other way it is the reason`,
    async (t) => {
      const loser = await spent('active');
      const exhausted = await hold(t, database, (held) => way(held, loser.environmentId));
      const stopped = loser.place.forceStop(loser.id);
      await exhausted.untilBlocked();
      await exhausted.commit();
      t.equal((await stopped).status, 409);
      t.match(await rowOf(database, loser.id), { stop_reason: 'exhausted' });

      const { environmentId, id } = await spent('active');
      const request = { environmentId, id, force: true, reason: 'worker' } as const;
      const winner = await hold(t, database, (held) => stop(held, [request]));
      t.equal((await way(database, environmentId)).setAside, 0);
      await winner.commit();
      t.equal((await way(database, environmentId)).setAside, 0);
      t.match(await rowOf(database, id), { state: 'stopped', stop_reason: 'worker' });
    },
  );

  t.test(`a put-back that waits while ${name} sets its item aside leaves it so`, async (t) => {
    const { environmentId, id, sessionsToken } = await spent('reserved');
    const exhausted = await hold(t, database, (held) => way(held, environmentId));
    const back = putBack(database, sessionsToken, true);
    await exhausted.untilBlocked();
    await exhausted.commit();
    t.equal(await back, false);
    t.match(await rowOf(database, id), { state: 'stopped', stop_reason: 'exhausted', hand_out_count: 1 });
  });

  t.test(`${name} does not set aside what a put-back is undoing, nor once it is undone`, async (t) => {
    const { environmentId, id, sessionsToken } = await spent('reserved');
    const back = await hold(t, database, (held) => putBack(held, sessionsToken, true));
    t.equal((await way(database, environmentId)).setAside, 0);
    await back.commit();
    t.equal((await way(database, environmentId)).setAside, 0);
    t.match(await rowOf(database, id), { state: 'queued', stop_reason: null, id });
  });
}

t.test(
  '8 replicas that poll at once set each spent item aside once, and hand out what is behind them once',
  async (t) => {
    const { environment, enqueue } = await newPlace(server);
    const others = await replicas(t, database, 8);
    const { workItems } = database.names;
    for (let n = 0; n < 20; n++) await enqueue(`spent ${n}`);
    await database.rows(sql`update ${workItems}
    set max_hand_outs = 1, hand_out_count = 1, is_last_hand_out = true, handed_out_at = clock_timestamp()
    where environment_id = ${environment.id}`);
    const ids = [await enqueue('one'), await enqueue('two'), await enqueue('three')];
    const polls = others.map(({ queue }) => queue.poll({ environmentId: environment.id, blockMs: 999 }));
    const got = (await Promise.all(polls)).flatMap((handOut) => handOut?.item.id ?? []);
    t.strictSame(got.sort(), ids.sort());
    const states = await database.rows(sql`select state, stop_reason as reason, count(*)::integer as n from ${workItems}
    where environment_id = ${environment.id} group by 1, 2 order by 1`);
    t.strictSame(states, [
      { state: 'queued', reason: null, n: 3 },
      { state: 'stopped', reason: 'exhausted', n: 20 },
    ]);
  },
);
