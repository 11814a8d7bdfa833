import { sql } from 'kysely';
import t from 'tap';
import { claimCandidate, claimNext, type Taken } from '../../src/process/claim.ts';
import { requestCancel } from '../../src/process/request-cancel.ts';
import { complete, fail, requeue } from '../../src/process/settle.ts';
import { cancelSession } from '../../src/queue/cancel-session.ts';
import { DEFAULT_SETTINGS } from '../../src/queue/settings.ts';
import { LAPSED, newLane, stopInside } from '../support/claims.ts';
import { hold } from '../support/interleave.ts';

const lane = await newLane(t);
const { database, queue, cloud, enqueue, claim, held, row, set } = lane;
const BY = { ttlSeconds: 60, workerId: 'racer' };
const CAPS = { maxAttempts: 25 };
t.beforeEach(() => lane.empty());

const candidate = async () => {
  const found = await queue.nextEligible('model_turn');
  if (found === null) throw new Error('set-up failed: no candidate');
  return found;
};

for (const end of ['commit', 'rollback'] as const) {
  t.test(`of two claimants pinned on one candidate one gets it, the other at once nothing (${end})`, async (t) => {
    const id = await enqueue();
    const [one, two] = [await candidate(), await candidate()];
    t.strictSame(one, two);
    const first = await hold(t, database, (place) => claimCandidate(place, one, BY, DEFAULT_SETTINGS));
    t.match(first.answer, { claimed: { id } });
    t.equal(await queue.claim(two, { ttlSeconds: 60 }), null, 'while it is being claimed');
    t.equal(await claim(), null, 'nor by its kind');
    await first[end]();
    const second = await queue.claim(two, { ttlSeconds: 60 });
    if (end === 'commit') t.equal(second, null);
    else t.match(second, { id, lease: { handOut: 1 } });
    t.match(await row(id), { hand_out_count: 1, worker_id: end === 'commit' ? 'racer' : 'one' });
  });
}

t.test('who claims beside a claim under way gets the next item', async (t) => {
  const ids = [await enqueue(), await enqueue()];
  const first = await hold(t, database, (place) => claimNext(place, 'model_turn', BY, DEFAULT_SETTINGS));
  t.match(
    [first.answer.claimed, await claim()],
    ids.map((id) => ({ id })),
  );
  await first.commit();
});

/** What may happen to an item between a claim's reading it and locking it. */
const MEANWHILE: Readonly<Record<string, (id: string) => Promise<unknown>>> = {
  'it is claimed': () => claim(),
  'it is claimed and given back': async () => {
    const claimed = await claim();
    if (claimed) await queue.requeue(claimed.lease);
  },
  'it is claimed and fails': async () => {
    const claimed = await claim();
    if (claimed) await queue.fail(claimed.lease, 'x');
  },
  'it is cancelled': (id) => queue.requestCancel({ environmentId: cloud, id }),
  'its session is cancelled': async (id) => queue.cancelSession(cloud, String((await row(id)).session_id)),
};
for (const [what, happen] of Object.entries(MEANWHILE)) {
  t.test(
    `${what} while a claim has read it as queued: the claim leaves it alone and takes what stands behind`,
    async (t) => {
      await held(); // live: the claim reads the clock for it, after it has read what is queued
      const id = await enqueue();
      const behind = sql`priority = -9`;
      const stopped = await stopInside(t, database, (place) => claimNext(place, 'model_turn', BY, DEFAULT_SETTINGS));
      await happen(id);
      const before = await row(id);
      const next = await enqueue();
      await set(next, behind);
      t.match(await stopped.go(), { claimed: { id: next, lease: { workerId: 'racer' } } });
      t.strictSame(await row(id), before);
    },
  );
}

t.test('taken over, renewed or asked to end while a claim has read it as lapsed, it is left alone', async (t) => {
  const CHANGES: Readonly<Record<string, (id: string) => Promise<unknown>>> = {
    'taken over': () => claim(),
    renewed: (id) => set(id, sql`lease_expires_at = clock_timestamp() + interval '1 minute'`),
    'renewed, and lapsed again': (id) => set(id, sql`lease_expires_at = clock_timestamp() - interval '1 second'`),
    'asked to end': (id) => queue.requestCancel({ environmentId: cloud, id }),
  };
  for (const [what, change] of Object.entries(CHANGES)) {
    await lane.empty();
    const { id } = await held();
    await set(id, LAPSED);
    const stopped = await stopInside(t, database, (place) => claimNext(place, 'model_turn', BY, DEFAULT_SETTINGS));
    await change(id);
    const before = await row(id);
    const { claimed } = (await stopped.go()) as Taken;
    t.equal(claimed, null, what);
    const after = await row(id);
    // Asked to end and lapsed, it may be ended in passing.
    if (what !== 'asked to end') t.strictSame(after, before, what);
    t.not(after.worker_id, 'racer', what);
  }
});

t.test('a follow-up that is kept on an item while a claim has read it stays on it', async (t) => {
  await held();
  const id = await enqueue({ sessionId: 'followed' });
  const stopped = await stopInside(t, database, (place) => claimNext(place, 'model_turn', BY, DEFAULT_SETTINGS));
  await queue.enqueue({ environmentId: cloud, sessionId: 'followed', kind: 'model_turn', followUp: true });
  const { claimed } = await stopped.go();
  t.match(claimed, { id });
  if (claimed) await queue.complete(claimed.lease);
  t.match(await claim(), { sessionId: 'followed' });
});

for (const end of ['commit', 'rollback'] as const) {
  t.test(`a request to cancel that waits for a completion (${end})`, async (t) => {
    const { id, lease } = await held();
    const completed = await hold(t, database, (place) => complete(place, lease, { unlessCancelled: true }));
    const asked = queue.requestCancel({ environmentId: cloud, id });
    await completed.untilBlocked();
    await completed[end]();
    t.match(
      await asked,
      end === 'commit' ? { accepted: false, state: 'stopped' } : { accepted: true, state: 'active' },
    );
    t.match(
      await row(id),
      end === 'commit' ? { stop_reason: 'worker', cancel_requested_at: null } : { state: 'active' },
    );
  });

  t.test(`a completion that waits for a request to cancel (${end})`, async (t) => {
    const { id, lease } = await held();
    const asked = await hold(t, database, (place) => requestCancel(place, { environmentId: cloud, id }));
    const completed = queue.complete(lease, { unlessCancelled: true });
    completed.catch(() => {});
    await asked.untilBlocked();
    await asked[end]();
    if (end === 'commit') {
      await t.rejects(completed, { code: 'cancelled' });
      t.match(await row(id), { state: 'active', cancel_requested_at: String });
    } else {
      t.match(await completed, { reason: 'worker' });
    }
  });

  t.test(`a failure and a giving back that wait for a request to cancel end the item by it (${end})`, async (t) => {
    for (const verb of ['fail', 'requeue'] as const) {
      const { id, lease } = await held();
      const asked = await hold(t, database, (place) => requestCancel(place, { environmentId: cloud, id }));
      const settled = verb === 'fail' ? queue.fail(lease, 'x') : queue.requeue(lease);
      await asked.untilBlocked();
      await asked[end]();
      t.match(await settled, end === 'commit' ? { state: 'stopped', reason: 'cancelled' } : { state: 'queued' }, verb);
    }
  });

  t.test(`a request to cancel that waits for a failure or a giving back (${end})`, async (t) => {
    for (const verb of [fail, requeue]) {
      const { id, lease } = await held();
      const settled = await hold(t, database, (place) => verb(place, lease, 'x', CAPS));
      const asked = queue.requestCancel({ environmentId: cloud, id });
      await settled.untilBlocked();
      await settled[end]();
      t.match(await asked, { accepted: true, state: end === 'commit' ? 'stopped' : 'active' });
      t.match(await row(id), { state: end === 'commit' ? 'stopped' : 'active', cancel_requested_at: String });
    }
  });

  t.test(`a request to cancel that waits for a claim is the claimant's to hear of (${end})`, async (t) => {
    const id = await enqueue();
    const claimed = await hold(t, database, (place) => claimNext(place, 'model_turn', BY, DEFAULT_SETTINGS));
    const asked = queue.requestCancel({ environmentId: cloud, id });
    await claimed.untilBlocked();
    await claimed[end]();
    t.match(await asked, { accepted: true, state: end === 'commit' ? 'active' : 'stopped' });
    if (end === 'rollback') return;
    const { lease } = claimed.answer.claimed ?? (await held());
    t.match(await queue.renew(lease, 60), { outcome: 'renewed', isCancelRequested: true });
  });

  t.test(`a settlement that waits for the end of its session is lost (${end})`, async (t) => {
    for (const verb of [
      complete,
      requeue,
      (...[place, lease]: Parameters<typeof requeue>) => fail(place, lease, 'x', CAPS),
    ]) {
      const { id, lease, sessionId } = await held();
      const cancelled = await hold(t, database, (place) => cancelSession(place, cloud, sessionId));
      t.match(cancelled.answer, [{ id }]);
      const settled = verb(database, lease);
      settled.catch(() => {});
      await cancelled.untilBlocked();
      await cancelled[end]();
      if (end === 'commit') await t.rejects(settled, { code: 'lease_lost' });
      else await settled;
      const { stop_reason: reason } = await row(id);
      t.equal(reason === 'cancelled', end === 'commit', `${reason}`);
    }
  });
}

t.test('of two settlements with one proof the second is lost', async (t) => {
  const { id, lease } = await held();
  const first = await hold(t, database, (place) => complete(place, lease));
  const second = queue.requeue(lease);
  second.catch(() => {});
  await first.untilBlocked();
  await first.commit();
  await t.rejects(second, { code: 'lease_lost' });
  t.match(await row(id), { state: 'stopped', stop_reason: 'worker' });
});

t.test('a session that is cancelled while its item is being claimed ends it, and its claimant finds out', async (t) => {
  const id = await enqueue({ sessionId: 'ended' });
  const claimed = await hold(t, database, (place) => claimNext(place, 'model_turn', BY, DEFAULT_SETTINGS));
  const cancelled = queue.cancelSession(cloud, 'ended');
  await claimed.untilBlocked();
  await claimed.commit();
  t.match(await cancelled, [{ id }]);
  const { claimed: item } = claimed.answer;
  if (item) await t.rejects(queue.complete(item.lease), { code: 'lease_lost' });
});
