import { sql } from 'kysely';
import t from 'tap';
import { LAPSED, newLane } from '../support/claims.ts';
import { ENGINES } from '../support/harness.ts';

for (const engine of ENGINES) {
  t.test(engine, async (t) => {
    const lane = await newLane(t, { engine });
    const { queue, cloud, selfHosted, enqueue, claim, mustClaim, held, row, set } = lane;
    const ref = (id: string) => ({ environmentId: cloud, id });
    t.beforeEach(() => lane.empty());

    t.test('a held item goes on, its holder is told by the next renewal and asked by cancelRequested', async (t) => {
      const neighbours = [(await held()).id, await enqueue()];
      const untouched = await lane.all();
      const { id, lease } = await held();
      t.equal(await queue.cancelRequested(lease), false);
      const before = await row(id);
      t.strictSame(await queue.requestCancel(ref(id)), { accepted: true, state: 'active' });
      const asked = await row(id);
      t.strictSame(asked, { ...before, cancel_requested_at: asked.cancel_requested_at });
      t.type(asked.cancel_requested_at, 'string');
      t.equal(await queue.cancelRequested(lease), true);
      const renewed = await queue.renew(lease, 60);
      t.match(renewed, { outcome: 'renewed', isCancelRequested: true });
      const others = (await lane.all()).filter((item) => neighbours.includes(String(item.id)));
      t.strictSame(others, untouched, 'nobody else is');
    });

    t.test('asking twice is asking once: of a held, a queued and an ended item', async (t) => {
      const { id } = await held();
      await queue.requestCancel(ref(id));
      const asked = await row(id);
      t.strictSame(await queue.requestCancel(ref(id)), { accepted: true, state: 'active' });
      t.strictSame(await row(id), asked);

      const queued = await enqueue();
      t.strictSame(await queue.requestCancel(ref(queued)), { accepted: true, state: 'stopped' });
      const ended = await row(queued);
      t.match(ended, { state: 'stopped', stop_reason: 'cancelled', stopped_at: String, stop_requested_at: String });
      t.type(ended.cancel_requested_at, 'string');
      t.strictSame(await queue.requestCancel(ref(queued)), { accepted: true, state: 'stopped' });
      t.strictSame(await row(queued), ended);
      t.equal(await claim(), null);
      const neighbour = await enqueue();
      t.match(await claim(), { id: neighbour });
    });

    t.test('what has ended otherwise is not cancelled any more', async (t) => {
      const { id, lease } = await held();
      await queue.complete(lease);
      const before = await row(id);
      t.strictSame(await queue.requestCancel(ref(id)), { accepted: false, state: 'stopped' });
      t.strictSame(await row(id), before);
    });

    t.test('an item waiting for its next attempt, or not yet due, ends at once', async (t) => {
      const retried = await held();
      await queue.fail(retried.lease, 'x');
      for (const id of [retried.id, await enqueue({ notBefore: '2999-01-01T00:00:00Z' })]) {
        t.strictSame(await queue.requestCancel(ref(id)), { accepted: true, state: 'stopped' });
        t.match(await row(id), { stop_reason: 'cancelled' });
      }
    });

    t.test('what is polled, elsewhere or unknown is not found, and stays as it is', async (t) => {
      const polled = await enqueue({ environmentId: selfHosted, kind: 'tool_exec' });
      const id = await enqueue();
      const before = await lane.all();
      for (const unknown of [
        { environmentId: selfHosted, id: polled },
        { environmentId: selfHosted, id },
        ref('work_unknown'),
        ref('a\0'),
      ]) {
        await t.rejects(queue.requestCancel(unknown), { code: 'not_found' });
      }
      t.strictSame(await lane.all(), before);
    });

    t.test('completing unless cancelled loses to an accepted request; without that it completes', async (t) => {
      const { id, lease } = await held();
      await queue.requestCancel(ref(id));
      const before = await row(id);
      await t.rejects(queue.complete(lease, { unlessCancelled: true }), { name: 'LeaseError', code: 'cancelled' });
      t.strictSame(await row(id), before);
      t.match(await queue.complete(lease), { state: 'stopped', reason: 'worker' });
      t.match(await row(id), { stop_requested_at: before.cancel_requested_at, stop_reason: 'worker' });
      t.match(await queue.requestCancel(ref(id)), { accepted: false });

      const other = await held();
      t.match(await queue.complete(other.lease, { unlessCancelled: true }), { state: 'stopped', reason: 'worker' });
    });

    t.test('failed or given back, an item that was asked to end ends cancelled', async (t) => {
      for (const end of ['requeue', 'fail', 'fail for good'] as const) {
        const { id, lease } = await held();
        await queue.requestCancel(ref(id));
        const { cancel_requested_at: askedAt } = await row(id);
        const settled =
          end === 'requeue' ? await queue.requeue(lease) : await queue.fail(lease, 'x', { isFinal: end !== 'fail' });
        t.strictSame(settled, { state: 'stopped', reason: 'cancelled', nextAttemptAt: null, retryInMs: null }, end);
        t.match(await row(id), {
          ...{ stop_reason: 'cancelled', attempt: 1, next_attempt_at: null, lease_expires_at: null },
          ...{ cancel_requested_at: askedAt, stop_requested_at: askedAt },
        });
        t.equal(await claim(), null);
      }
    });

    const WAYS: Readonly<Record<string, () => Promise<unknown>>> = {
      'a claim': () => claim(),
      'a reclaim': async () => {
        const [lease] = await queue.expired(['model_turn']);
        return lease === undefined ? null : queue.reclaim(lease, { ttlSeconds: 60 });
      },
      'the sweep': async () => {
        await queue.sweep();
        return null;
      },
    };
    for (const [name, way] of Object.entries(WAYS)) {
      t.test(
        `a request survives the death of who held it: ${name} ends the item, and nobody runs it again`,
        async (t) => {
          const { id } = await held();
          await queue.requestCancel(ref(id));
          const live = await row(id);
          t.equal(await way(), null);
          t.strictSame(await row(id), live, 'not while the lease lives');
          await set(id, LAPSED);
          const { lease_expires_at: lapsedAt, cancel_requested_at: askedAt } = await row(id);
          t.equal(await way(), null);
          t.match(await row(id), {
            ...{ state: 'stopped', stop_reason: 'cancelled', hand_out_count: 1, hand_over_count: 0 },
            ...{ lapsed_at: lapsedAt, stop_requested_at: askedAt, cancel_requested_at: askedAt, worker_id: 'one' },
          });
          t.equal(await claim(), null);
        },
      );

      t.test(`cancelled comes before exhausted: ${name}`, async (t) => {
        const { id } = await held({ maxHandOuts: 1 });
        await queue.requestCancel(ref(id));
        await set(id, LAPSED);
        await way();
        t.match(await row(id), { stop_reason: 'cancelled' });
      });

      t.test(`${name} ends more than fifty at once, and runs what stands behind them`, async (t) => {
        const requests = Array.from({ length: 60 }, (_, n) => ({
          ...{ environmentId: cloud, sessionId: `ended ${n}`, kind: 'model_turn' as const },
        }));
        await queue.enqueueAll(requests);
        await lane.database.rows(sql`update ${lane.database.names.workItems} set state = 'active', worker_id = 'x',
          hand_out_count = 1, ${LAPSED}, cancel_requested_at = clock_timestamp()`);
        const id = await enqueue();
        if (name === 'the sweep') await way();
        t.match(await mustClaim(), { id });
        t.equal(await claim(), null);
        t.equal((await lane.all()).filter((item) => item.stop_reason === 'cancelled').length, 60);
      });
    }

    t.test('cancelSession ends what is queued, held and winding down; its slots are free at once', async (t) => {
      const sessionId = 'cancelled';
      const wire = { environmentId: selfHosted, sessionId, kind: 'tool_exec' as const };
      const { id: stopping } = (await queue.enqueue(wire)).item;
      await queue.poll({ environmentId: selfHosted });
      const name = { environmentId: selfHosted, id: stopping };
      await queue.ack([name]);
      await queue.heartbeat([{ ...name, expectedLastHeartbeat: 'NO_HEARTBEAT', isRetry: false }]);
      await queue.stop([{ ...name, force: false, reason: 'worker' }]);
      const kinds = ['model_turn', 'mcp_exec', 'web_exec'] as const;
      for (const kind of kinds) await enqueue({ environmentId: selfHosted, sessionId, kind });
      const active = await mustClaim('model_turn');
      const asked = await mustClaim('mcp_exec');
      await queue.requestCancel(asked);
      await queue.enqueue({ environmentId: selfHosted, sessionId, kind: 'model_turn', followUp: true });
      const neighbour = await enqueue({ environmentId: selfHosted, kind: 'web_exec' });
      const namesake = await enqueue({ environmentId: cloud, sessionId });

      const cancelled = await queue.cancelSession(selfHosted, sessionId);
      t.equal(cancelled.length, 4);
      for (const { id } of cancelled) {
        const found = await row(id);
        t.match(found, { state: 'stopped', stop_reason: 'cancelled', lease_expires_at: null, follow_up: null });
      }
      t.ok(cancelled.some(({ id }) => id === stopping));
      for (const { lease } of [active, asked]) await t.rejects(queue.complete(lease), { code: 'lease_lost' });
      t.match(await row(neighbour), { state: 'queued' });
      t.match(await row(namesake), { state: 'queued' });
      for (const kind of ['tool_exec', ...kinds] as const) {
        t.match(await queue.enqueue({ environmentId: selfHosted, sessionId, kind }), { created: true }, kind);
      }
      t.equal((await queue.cancelSession(selfHosted, sessionId)).length, 4, 'the new ones');
      t.strictSame(await queue.cancelSession(selfHosted, sessionId), []);
      await t.rejects(queue.cancelSession('env_unknown', sessionId), { code: 'environment_not_found' });
    });
  });
}
