import { sql } from 'kysely';
import t from 'tap';
import { WORK_KINDS, type WorkKind } from '../../src/queue/items.ts';
import { AGO, LAPSED, newLane } from '../support/claims.ts';
import { ENGINES } from '../support/harness.ts';

const SOON = sql`clock_timestamp() + interval '1 hour'`;
const ms = (text: string) => Date.parse(text);

for (const engine of ENGINES) {
  t.test(engine, async (t) => {
    const lane = await newLane(t, { engine });
    const { queue, cloud, selfHosted, enqueue, claim, mustClaim, held, row, set } = lane;
    t.beforeEach(() => lane.empty());

    t.test('each kind is claimed for each environment, tool_exec for cloud ones alone', async (t) => {
      for (const environmentId of [cloud, selfHosted]) {
        for (const kind of WORK_KINDS) {
          if (kind === 'outputs_harvest' && environmentId === selfHosted) continue;
          const id = await enqueue({ environmentId, kind });
          const isPolled = kind === 'tool_exec' && environmentId === selfHosted;
          t.equal((await row(id)).lane, isPolled ? 'wire' : 'process');
          const others = WORK_KINDS.filter((other) => other !== kind);
          for (const other of others) t.equal(await claim(other), null, `${kind} is no ${other}`);
          if (isPolled) {
            t.equal(await claim(kind), null);
            t.equal(await queue.nextEligible(kind), null);
            t.match(await queue.poll({ environmentId }), { item: { id } });
          } else {
            t.equal(await queue.poll({ environmentId }), null, `${kind} is not polled`);
            t.match(await claim(kind), { id, kind, environmentId });
          }
        }
      }
    });

    t.test('outputs_harvest is refused for a self_hosted environment, and nothing is enqueued', async (t) => {
      const kind = 'outputs_harvest';
      const request = { environmentId: selfHosted, sessionId: 's' } as const;
      await t.rejects(queue.enqueue({ ...request, kind }), { code: 'invalid_request', message: /kind/ });
      const batch = [
        { ...request, environmentId: cloud },
        { ...request, kind },
      ] as const;
      await t.rejects(queue.enqueueAll(batch), { code: 'invalid_request', message: /kind/ });
      t.strictSame(await lane.all(), []);
    });

    t.test('a claim answers the item as it was enqueued, and the proof that the row holds', async (t) => {
      const traceContext = { traceparent: `00-${'a'.repeat(32)}-${'b'.repeat(16)}-01`, tracestate: 'c=d' };
      const input = { text: 'ü', list: [1, null, { deep: true }] };
      const id = await enqueue({ input, traceContext, metadata: { team: 'a' }, maxAttempts: 7 });
      const claimed = await mustClaim('model_turn', 'claimant', 300);
      t.match(claimed, {
        ...{ id, kind: 'model_turn', state: 'active', environmentId: cloud, attempt: 1, maxAttempts: 7 },
        ...{ isReclaimed: false, metadata: { team: 'a' }, lease: { workerId: 'claimant', handOut: 1 } },
      });
      t.strictSame(claimed.input, input);
      t.strictSame(claimed.traceContext, traceContext);
      t.match(claimed.lease.expiresAt, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$/);
      const found = await row(id);
      t.equal(ms(String(found.lease_expires_at)), ms(claimed.lease.expiresAt));
      const seconds = (ms(String(found.lease_expires_at)) - ms(String(found.handed_out_at))) / 1_000;
      t.ok(Math.abs(seconds - 300) < 1, `${seconds} s`);
      t.match(found, { worker_id: 'claimant', hand_out_count: 1, lease_ttl_seconds: 300, hand_over_count: 0 });
      t.ok(Object.isFrozen(claimed) && Object.isFrozen(claimed.lease), 'a value, not a handle');
      t.ok(claimed.lease.askedAtMs > 0 && claimed.lease.askedAtMs <= performance.now());
      t.equal(await claim(), null, 'held');
    });

    t.test('without input, trace and attempts of its own: null, null, 25', async (t) => {
      await enqueue();
      t.match(await claim(), { input: null, traceContext: null, maxAttempts: 25, attempt: 1 });
      t.equal(await claim(), null);
    });

    t.test('each item comes with its own input', async (t) => {
      for (const input of ['one', null, 'three']) await enqueue(input === null ? {} : { input });
      for (const input of ['one', null, 'three']) t.equal((await mustClaim()).input, input);
    });

    t.test('the first by priority, then the oldest, of what is queued, due and lapsed alike', async (t) => {
      const due = { notBefore: '2020-01-01T00:00:00Z' };
      const lapsed = await held();
      const retried = await held();
      await queue.fail(retried.lease, 'x');
      const { id: lapsedFirst } = await held({ priority: 8 });
      const ids = [lapsed.id, retried.id, await enqueue(), await enqueue(due), await enqueue({ priority: -1 })];
      const first = await enqueue({ priority: 9 });
      await set(lapsed.id, LAPSED);
      await set(lapsedFirst, LAPSED);
      await set(retried.id, sql`next_attempt_at = ${AGO}`);
      for (const id of [first, lapsedFirst, ...ids]) {
        const claimed = await mustClaim();
        t.equal(claimed.id, id);
        t.equal(claimed.isReclaimed, id === lapsed.id || id === lapsedFirst);
      }
      t.equal(await claim(), null);
    });

    t.test('what is not due, live, ended or of another kind is not claimed, nor eligible', async (t) => {
      const later = await enqueue({ notBefore: '2999-01-01T00:00:00Z' });
      await held();
      const ended = await held();
      await queue.complete(ended.lease);
      const retried = await held();
      await queue.fail(retried.lease, 'x');
      await set(retried.id, sql`next_attempt_at = ${SOON}`);
      await enqueue({ kind: 'mcp_exec' });
      await enqueue({ kind: 'mcp_exec', notBefore: '2020-01-01T00:00:00Z' });
      const before = await lane.all();
      t.equal(await claim(), null);
      t.equal(await queue.nextEligible('model_turn'), null);
      t.strictSame(await lane.all(), before);
      await set(later, sql`next_attempt_at = ${AGO}, not_before = ${AGO}`);
      t.match(await claim(), { id: later });
    });

    t.test('an item of before this lane, whose instant stands in not_before alone, waits for it', async (t) => {
      const id = await enqueue();
      await set(id, sql`not_before = ${SOON}`);
      t.equal(await claim(), null);
      await set(id, sql`not_before = ${AGO}`);
      t.match(await claim(), { id });
    });

    t.test('a claim that takes over counts it, spends no attempt, and voids the proof of before', async (t) => {
      const first = await held();
      await set(first.id, LAPSED);
      const second = await mustClaim('model_turn', 'two');
      t.match(second, { id: first.id, isReclaimed: true, attempt: 1, lease: { workerId: 'two', handOut: 2 } });
      t.match(await row(first.id), { hand_over_count: 1, hand_out_count: 2, attempt: 1, worker_id: 'two' });
      const before = await row(first.id);
      await t.rejects(queue.complete(first.lease), { code: 'lease_lost' });
      t.strictSame(await row(first.id), before);
    });

    t.test('a candidate owns nothing; it is claimed unless it changed since it was read', async (t) => {
      const id = await enqueue();
      const before = await row(id);
      const candidate = await queue.nextEligible('model_turn');
      t.strictSame(await row(id), before);
      if (candidate === null) return t.fail('no candidate');
      t.match(candidate, { id, environmentId: cloud, kind: 'model_turn', handOut: 0 });
      t.ok(Object.isFrozen(candidate));
      t.match(await queue.claim(candidate, { ttlSeconds: 60 }), { id, isReclaimed: false, lease: { workerId: 'one' } });
      t.equal(await queue.claim(candidate, { ttlSeconds: 60 }), null, 'taken');
    });

    t.test('a candidate is claimed itself, also when a more urgent item has come meanwhile', async (t) => {
      const id = await enqueue();
      const candidate = await queue.nextEligible('model_turn');
      const urgent = await enqueue({ priority: 1 });
      if (candidate === null) return t.fail('no candidate');
      t.match(await queue.claim(candidate, { ttlSeconds: 60 }), { id });
      t.match(await claim(), { id: urgent });
    });

    t.test('a stale candidate is nobody’s, also when the item is queued again, lapsed or ended', async (t) => {
      const id = await enqueue();
      const stale = await queue.nextEligible('model_turn');
      if (stale === null) return t.fail('no candidate');
      const other = await mustClaim();
      const refused = async (where: string) => {
        const before = await row(id);
        t.equal(await queue.claim(stale, { ttlSeconds: 60 }), null, where);
        t.strictSame(await row(id), before, where);
      };
      await refused('held');
      await set(id, LAPSED);
      await refused('lapsed');
      const { lease } = await mustClaim();
      await queue.requeue(lease);
      await refused('given back');
      const again = await queue.nextEligible('model_turn');
      t.match(again, { id, handOut: 2 });
      t.not(other.lease.expiresAt, lease.expiresAt);
      await queue.complete((await mustClaim()).lease);
      await refused('ended');
      if (again) t.equal(await queue.claim(again, { ttlSeconds: 60 }), null);
    });

    t.test('nextEligible names what a claim takes first, and never what is only lapsed', async (t) => {
      const lapsed = await held();
      await set(lapsed.id, LAPSED);
      t.equal(await queue.nextEligible('model_turn'), null);
      const [old, , urgent] = [await enqueue(), await enqueue(), await enqueue({ priority: 1 })];
      t.match(await queue.nextEligible('model_turn'), { id: urgent });
      await set(urgent, sql`next_attempt_at = ${SOON}`);
      t.match(await queue.nextEligible('model_turn'), { id: old });
      await set(urgent, sql`next_attempt_at = ${AGO}`);
      t.match(await queue.nextEligible('model_turn'), { id: urgent });
    });

    t.test('what SQL could not take is refused by name, and nothing is claimed', async (t) => {
      await enqueue();
      const candidate = await queue.nextEligible('model_turn');
      const before = await lane.all();
      const refused = (promise: Promise<unknown>, message: RegExp) =>
        t.rejects(promise, { code: 'invalid_request', message });
      for (const ttlSeconds of [0, -1, 1.5, 86_401, Number.NaN, '60' as unknown as number]) {
        await refused(queue.claim('model_turn', { ttlSeconds }), /ttlSeconds/);
      }
      await refused(queue.claim('model_turn', undefined as never), /ttlSeconds/);
      for (const workerId of ['', 'x'.repeat(257), 'a\0b', '\ud800']) {
        await refused(queue.claim('model_turn', { ttlSeconds: 60, workerId }), /workerId/);
      }
      for (const kind of ['', 'model', "model_turn'"]) {
        await refused(queue.claim(kind as WorkKind, { ttlSeconds: 60 }), /kind/);
        await refused(queue.nextEligible(kind as WorkKind), /kind/);
        await refused(queue.expired([kind as WorkKind]), /kind/);
      }
      if (candidate === null) return t.fail('no candidate');
      for (const seq of ['', '1; drop', '-1', '9'.repeat(19)]) {
        await refused(queue.claim({ ...candidate, seq }, { ttlSeconds: 60 }), /seq/);
      }
      await refused(queue.claim({ ...candidate, handOut: -1 }, { ttlSeconds: 60 }), /handOut/);
      for (const limit of [0, 1_001, 1.5]) await refused(queue.expired(['model_turn'], limit), /limit/);
      t.strictSame(await lane.all(), before);
    });
  });
}
