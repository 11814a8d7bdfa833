import { sql } from 'kysely';
import t from 'tap';
import { changeSettings, pauseEnvironment } from '../../src/control/settings.ts';
import { claimNext } from '../../src/process/claim.ts';
import { ack } from '../../src/queue/ack.ts';
import { history } from '../../src/queue/history.ts';
import { poll } from '../../src/queue/poll.ts';
import { putBack } from '../../src/queue/put-back.ts';
import { DEFAULT_SETTINGS } from '../../src/queue/settings.ts';
import { stop } from '../../src/queue/stop.ts';
import { AGO, newLane, stopInside } from '../support/claims.ts';
import { hold } from '../support/interleave.ts';

const lane = await newLane(t);
const { database, queue, selfHosted: environmentId, enqueue, claim, row, set } = lane;
const kind = 'tool_exec' as const;
const BY = { ttlSeconds: 60, workerId: 'platform' };
const LOOK = { ...DEFAULT_SETTINGS, minQueuedAgeMs: 0 };
const TAKER = { workerId: 'fleet', reclaimOlderThanMs: 60_000 };
t.beforeEach(async () => {
  await lane.empty();
  await changeSettings(database, environmentId, { fallbackAfterMs: 1_000 }, DEFAULT_SETTINGS);
});

const waiting = async () => {
  const id = await enqueue({ environmentId, kind });
  await set(id, sql`created_at = ${AGO}`);
  return id;
};
/** Handed out, and its reservation lapsed: free for both lanes. */
const lapsed = async () => {
  const id = await waiting();
  const handOut = await queue.poll({ environmentId, workerId: 'late' });
  await set(id, sql`lease_expires_at = ${AGO}`);
  return { id, token: handOut?.sessionsToken ?? '' };
};

for (const end of ['commit', 'rollback'] as const) {
  for (const [name, make] of Object.entries({ 'never handed out': waiting, lapsed: async () => (await lapsed()).id })) {
    t.test(`a poll passes by what is falling back (${name}, ${end})`, async (t) => {
      const id = await make();
      const claimed = await hold(t, database, (place) => claimNext(place, kind, BY, DEFAULT_SETTINGS));
      t.match(claimed.answer, { claimed: { kind } });
      t.equal(await queue.poll({ environmentId }), null);
      await claimed[end]();
      const handOut = await queue.poll({ environmentId });
      if (end === 'commit') {
        t.equal(handOut, null);
        t.match(await row(claimed.answer.claimed?.id ?? ''), { lane: 'process', worker_id: 'platform' });
      } else {
        t.type(handOut?.item.id, 'string');
        t.equal((await history(database, { environmentId, id })).work.lane, 'wire');
      }
    });

    t.test(`a claim passes by what is being polled (${name}, ${end})`, async (t) => {
      await make();
      const polled = await hold(t, database, (place) => poll(place, environmentId, [TAKER], LOOK));
      t.match(polled.answer.handOuts, [{ item: { kind } }]);
      t.equal(await claim(kind), null);
      await polled[end]();
      const claimed = await claim(kind);
      if (end === 'commit') t.equal(claimed, null, 'the reservation is live');
      else t.match(claimed, { kind });
    });
  }
}

/** What a worker or an operator may do to a waiting item between a claim's reading it and locking it. */
const MEANWHILE: Readonly<Record<string, (id: string) => Promise<unknown>>> = {
  'a poll reserves it': () => queue.poll({ environmentId, reclaimOlderThanMs: 60_000 }),
  'a late ack arrives': (id) => queue.ack([{ environmentId, id }]),
  'a worker stops it': (id) => queue.stop([{ environmentId, id, force: true, reason: 'worker' }]),
  'a claim takes it': () => claim(kind),
};
for (const [name, happen] of Object.entries(MEANWHILE)) {
  t.test(`${name} while a claim has read it: the claim leaves it alone`, async (t) => {
    const { id } = await lapsed();
    const stopped = await stopInside(t, database, (place) => claimNext(place, kind, BY, DEFAULT_SETTINGS));
    await happen(id);
    const { work } = await history(database, { environmentId, id });
    const before = await row(work.id);
    t.match(await stopped.go(), { claimed: null });
    t.strictSame(await row(work.id), before);
  });
}

t.test('an ack and a stop that wait for a claim find nothing under their id any more', async (t) => {
  for (const verb of ['ack', 'stop', 'stop by force'] as const) {
    const { id } = await lapsed();
    const claimed = await hold(t, database, (place) => claimNext(place, kind, BY, DEFAULT_SETTINGS));
    const name = { environmentId, id };
    const late =
      verb === 'ack' ? queue.ack([name]) : queue.stop([{ ...name, force: verb !== 'stop', reason: 'worker' }]);
    await claimed.untilBlocked();
    await claimed.commit();
    t.match(await late, [{ code: 'not_found' }], verb);
    t.match(await row(claimed.answer.claimed?.id ?? ''), { state: 'active', worker_id: 'platform' });
  }
});

t.test('a claim passes by what is being acked, stopped or put back', async (t) => {
  const { id, token } = await lapsed();
  const name = { environmentId, id };
  for (const verb of [
    (place: typeof database) => ack(place, [name], DEFAULT_SETTINGS),
    (place: typeof database) => stop(place, [{ ...name, force: true, reason: 'worker' }]),
    (place: typeof database) => putBack(place, token, true),
  ]) {
    const acting = await hold<unknown>(t, database, verb);
    t.equal(await claim(kind), null);
    await acting.rollback();
  }
  const back = await hold(t, database, (place) => putBack(place, token, true));
  t.equal(back.answer, true);
  await back.commit();
  t.match(await claim(kind), { id, isReclaimed: false }, 'unseen, it was never handed out');
});

t.test('a late put-back that waits for a claim puts nothing back', async (t) => {
  const { token } = await lapsed();
  const claimed = await hold(t, database, (place) => claimNext(place, kind, BY, DEFAULT_SETTINGS));
  const back = putBack(database, token, true);
  await claimed.untilBlocked();
  await claimed.commit();
  t.equal(await back, false);
  t.match(await row(claimed.answer.claimed?.id ?? ''), { state: 'active', hand_out_count: 2 });
});

t.test('a pause that commits first keeps the work from falling back', async (t) => {
  const id = await waiting();
  const paused = await hold(t, database, (place) => pauseEnvironment(place, environmentId, DEFAULT_SETTINGS));
  await paused.commit();
  t.equal(await claim(kind), null);
  t.match(await row(id), { lane: 'wire', state: 'queued' });
});
