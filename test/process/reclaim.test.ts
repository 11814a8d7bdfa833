import { sql } from 'kysely';
import t from 'tap';
import { assertOwned } from '../../src/process/assert.ts';
import { reclaim } from '../../src/process/claim.ts';
import { extend } from '../../src/process/extend.ts';
import { reap } from '../../src/process/reap.ts';
import { DEFAULT_SETTINGS } from '../../src/queue/settings.ts';
import { LAPSED, newLane, stopInside } from '../support/claims.ts';
import { hold } from '../support/interleave.ts';

const lane = await newLane(t);
const { database, queue, claim, mustClaim, held, row, set } = lane;
const BY = { ttlSeconds: 60, workerId: 'two' };
t.beforeEach(() => lane.empty());

/** An item whose claimant died, and its lease as the sweep finds it. */
const lapsed = async (fields: Parameters<typeof held>[0] = {}) => {
  const { id } = await held(fields);
  await set(id, LAPSED);
  const [lease] = (await queue.expired(['model_turn'])).filter((found) => found.id === id);
  if (lease === undefined) throw new Error('set-up failed: the lease was not found');
  return { id, lease };
};

t.test('expired finds what has lapsed of the kinds asked for, oldest first, and owns nothing', async (t) => {
  const first = await lapsed();
  const live = await held({ kind: 'web_exec' });
  const second = await lapsed({ priority: 9 });
  const other = await held({ kind: 'mcp_exec' });
  await set(other.id, LAPSED);
  const ended = await held();
  await queue.complete(ended.lease);
  const before = await lane.all();
  const ids = async (...args: Parameters<typeof queue.expired>) => (await queue.expired(...args)).map(({ id }) => id);
  t.strictSame(await ids(['model_turn']), [first.id, second.id]);
  t.strictSame(await ids(['mcp_exec', 'model_turn', 'web_exec']), [first.id, second.id, other.id]);
  t.strictSame(await ids(['model_turn', 'mcp_exec'], 2), [first.id, second.id]);
  t.strictSame(await ids([]), []);
  t.match(first.lease, { workerId: 'one', handOut: 1, environmentId: lane.cloud, kind: 'model_turn', askedAtMs: 0 });
  t.ok(Object.isFrozen(first.lease));
  t.strictSame(await lane.all(), before);
  t.match(await queue.extend(live.lease, 60), { isCancelRequested: false });
});

t.test('a reclaim takes over from that owner and that instant, with a proof of its own', async (t) => {
  const { id, lease } = await lapsed({ input: 'x' });
  const taken = await queue.reclaim(lease, BY);
  t.match(taken, { id, isReclaimed: true, input: 'x', attempt: 1, lease: { workerId: 'two', handOut: 2 } });
  t.match(await row(id), { worker_id: 'two', hand_over_count: 1, attempt: 1 });
  t.equal(await queue.reclaim(lease, BY), null, 'once');
  await t.rejects(queue.complete(lease), { code: 'lease_lost' });
});

t.test('another owner, hand-out, instant or item is not taken over, nor what is not lapsed', async (t) => {
  const { id, lease } = await lapsed();
  const before = await row(id);
  const micro = lease.expiresAt.replace(/\d(?=Z$)/, (digit) => String((Number(digit) + 1) % 10));
  for (const other of [{ workerId: 'two' }, { handOut: 2 }, { expiresAt: micro }, { seq: '999999' }]) {
    t.equal(await queue.reclaim({ ...lease, ...other }, BY), null, JSON.stringify(other));
    t.strictSame(await row(id), before);
  }
  const { lease: renewed } = await queue.extend(lease, 60);
  t.equal(await queue.reclaim(renewed, BY), null, 'it lives');
  t.match(await row(id), { worker_id: 'one', hand_out_count: 1 });
  for (const ttlSeconds of [0, 86_401]) {
    await t.rejects(queue.reclaim(lease, { ttlSeconds }), { code: 'invalid_request' });
  }
});

t.test('a renewal between scan and reclaim defeats the reclaim', async (t) => {
  const { id, lease } = await lapsed();
  const { lease: renewed } = await queue.extend(lease, 1);
  t.equal(await queue.reclaim(lease, BY), null);
  await queue.complete(renewed);
  t.match(await row(id), { stop_reason: 'worker' });
});

t.test('also one that lapses again: its instant is another', async (t) => {
  const { id, lease } = await lapsed();
  await queue.extend(lease, 1);
  await set(id, sql`lease_expires_at = clock_timestamp() - interval '1 second'`);
  t.equal(await queue.reclaim(lease, BY), null);
  t.match(await claim(), { id });
});

t.test('also one that commits while the reclaim has read the lapsed lease already', async (t) => {
  const { id, lease } = await lapsed();
  const stopped = await stopInside(t, database, (place) => reclaim(place, lease, BY, DEFAULT_SETTINGS));
  const { lease: renewed } = await queue.extend(lease, 60);
  const before = await row(id);
  t.match(await stopped.go(), { claimed: null });
  t.strictSame(await row(id), before);
  await queue.complete(renewed);
});

t.test('a renewal that waits while the item is reclaimed is lost; where that is undone, it renews', async (t) => {
  for (const end of ['commit', 'rollback'] as const) {
    const { id, lease } = await lapsed();
    const taken = await hold(t, database, (place) => reclaim(place, lease, BY, DEFAULT_SETTINGS));
    t.match(taken.answer, { claimed: { id } });
    const renewal = queue.renew(lease, 60);
    await taken.untilBlocked();
    await taken[end]();
    t.match(await renewal, { outcome: end === 'commit' ? 'lost' : 'renewed' });
    t.match(await row(id), { worker_id: end === 'commit' ? 'two' : 'one' });
  }
});

t.test('what is being renewed is taken over by nobody, while it is and afterwards', async (t) => {
  const { id, lease } = await lapsed();
  const renewed = await hold(t, database, (place) => extend(place, lease, 60));
  const passesBy = async (when: string) => {
    t.equal(await claim(), null, when);
    t.equal(await queue.reclaim(lease, BY), null, when);
    t.match(await reap(database, DEFAULT_SETTINGS), { topics: [], more: false });
    t.match(await row(id), { state: 'active', worker_id: 'one', hand_out_count: 1 });
  };
  await passesBy('while');
  await renewed.commit();
  await passesBy('afterwards');
});

t.test('a proof asserted first keeps the reclaim out until the transaction ends', async (t) => {
  const { id, lease } = await lapsed();
  const asserted = await hold(t, database, (place, client) => assertOwned(place, lease, client));
  t.equal(await queue.reclaim(lease, BY), null);
  t.equal(await claim(), null);
  await asserted.commit();
  t.match(await queue.reclaim(lease, BY), { id });
});

t.test('a proof asserted while the reclaim has read the lapsed lease already keeps it out, too', async (t) => {
  const { id, lease } = await lapsed();
  const stopped = await stopInside(t, database, (place) => reclaim(place, lease, BY, DEFAULT_SETTINGS));
  const asserted = await hold(t, database, (place, client) => assertOwned(place, lease, client));
  t.match(await stopped.go(), { claimed: null });
  await asserted.commit();
  t.match(await row(id), { worker_id: 'one', hand_out_count: 1 });
});

t.test(
  'an assertion that comes while the item is reclaimed waits, and is lost; where that is undone, it holds',
  async (t) => {
    for (const end of ['commit', 'rollback'] as const) {
      const { id, lease } = await lapsed();
      const taken = await hold(t, database, (place) => reclaim(place, lease, BY, DEFAULT_SETTINGS));
      const asserted = database.transaction(async (transaction) => {
        await queue.assert(lease, transaction);
        await queue.complete(lease, {}, transaction);
      });
      asserted.catch(() => {});
      await taken.untilBlocked();
      await taken[end]();
      if (end === 'commit') await t.rejects(asserted, { code: 'lease_lost' });
      else await asserted;
      t.match(await row(id), end === 'commit' ? { worker_id: 'two', state: 'active' } : { stop_reason: 'worker' });
      if (end === 'commit') await lane.empty();
    }
  },
);

t.test('the sweep ends so many at once, and tells when there are more', async (t) => {
  const requests = Array.from({ length: 60 }, (_, n) => ({
    ...{ environmentId: lane.cloud, sessionId: `ended ${n}`, kind: 'model_turn' as const },
  }));
  await queue.enqueueAll(requests);
  await database.rows(sql`update ${database.names.workItems} set state = 'active', worker_id = 'x',
    hand_out_count = 1, ${LAPSED}, cancel_requested_at = clock_timestamp()`);
  const ended = async () => (await lane.all()).filter((item) => item.state === 'stopped').length;
  for (const [more, count] of [
    [true, 50],
    [false, 60],
    [false, 60],
  ] as const) {
    t.strictSame(await reap(database, DEFAULT_SETTINGS), { topics: [], more });
    t.equal(await ended(), count);
  }
});

const DOOMED = { cancelled: sql`cancel_requested_at = clock_timestamp()`, exhausted: sql`max_hand_outs = 1` };
for (const [reason, columns] of Object.entries(DOOMED)) {
  t.test(
    `an item to be ended as ${reason} is let live where a renewal commits while the sweep has read it`,
    async (t) => {
      const { id, lease } = await lapsed();
      await set(id, columns);
      const stopped = await stopInside(t, database, (place) => reap(place, DEFAULT_SETTINGS));
      await queue.extend(lease, 60);
      const before = await row(id);
      await stopped.go();
      t.strictSame(await row(id), before);
    },
  );

  t.test(`a renewal that waits while the sweep ends its item as ${reason} is lost`, async (t) => {
    const { id, lease } = await lapsed();
    await set(id, columns);
    const ended = await hold(t, database, (place) => reap(place, DEFAULT_SETTINGS));
    const renewal = queue.renew(lease, 60);
    await ended.untilBlocked();
    t.equal(await claim(), null, 'and others pass it by');
    t.equal(await queue.reclaim(lease, BY), null);
    await reap(database, DEFAULT_SETTINGS);
    await ended.commit();
    t.match(await renewal, { outcome: 'lost' });
    t.match(await row(id), { state: 'stopped', stop_reason: reason });
  });

  t.test(`a reclaim of one item ends no other that is to be ended as ${reason}`, async (t) => {
    const mine = await lapsed();
    const other = await lapsed();
    await set(other.id, columns);
    const before = await row(other.id);
    t.match(await queue.reclaim(mine.lease, BY), { id: mine.id });
    t.equal(await queue.reclaim({ ...other.lease, handOut: 7 }, BY), null);
    t.strictSame(await row(other.id), before);
    t.equal(await queue.reclaim(other.lease, BY), null);
    t.match(await row(other.id), { stop_reason: reason });
  });

  t.test(`a claim of one kind ends no item of another that is to be ended as ${reason}`, async (t) => {
    const { id } = await held({ kind: 'mcp_exec' });
    await set(id, sql`${LAPSED}, ${columns}`);
    const before = await row(id);
    t.equal(await claim(), null);
    t.strictSame(await row(id), before);
    t.equal(await claim('mcp_exec'), null);
    t.match(await row(id), { stop_reason: reason });
    await t.rejects(mustClaim());
  });
}
