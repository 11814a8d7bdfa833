import { sql } from 'kysely';
import t from 'tap';
import { changeSettings, pauseEnvironment, resumeEnvironment } from '../../src/control/settings.ts';
import { history } from '../../src/queue/history.ts';
import { DEFAULT_SETTINGS } from '../../src/queue/settings.ts';
import { AGO, LAPSED, newLane } from '../support/claims.ts';
import { ENGINES } from '../support/harness.ts';

for (const engine of ENGINES) {
  t.test(engine, async (t) => {
    const lane = await newLane(t, { engine });
    const { database, queue, selfHosted: environmentId, enqueue, claim, mustClaim, row, set } = lane;
    const kind = 'tool_exec' as const;
    const old = sql`created_at = ${AGO}`;
    const fallBack = (fallbackAfterMs: number | null) =>
      changeSettings(database, environmentId, { fallbackAfterMs }, DEFAULT_SETTINGS);
    t.beforeEach(async () => {
      await lane.empty();
      await fallBack(30_000);
    });

    /** Queued for a minute; first refusal is for half of one. */
    const waiting = async (fields: Parameters<typeof enqueue>[0] = {}) => {
      const id = await enqueue({ environmentId, kind, ...fields });
      await set(id, old);
      return id;
    };
    const seqOf = async (id: string) => String((await row(id)).seq);
    const isNotClaimed = async (t: Tap, id: string, why: string) => {
      const before = await row(id);
      t.equal(await queue.nextEligible(kind), null, why);
      t.equal(await claim(kind), null, why);
      t.strictSame(await row(id), before, why);
    };

    t.test('without the setting polled work is never claimed, however old', async (t) => {
      const id = await waiting();
      await fallBack(null);
      await isNotClaimed(t, id, 'never');
      t.match(await queue.poll({ environmentId }), { item: { id } });
    });

    t.test('what a worker had begun and lost stays so when the next worker gives it back', async (t) => {
      const id = await waiting();
      await queue.poll({ environmentId });
      await queue.ackOne({ environmentId, id });
      await set(id, LAPSED);
      const again = await queue.poll({ environmentId });
      if (again === null) throw new Error('it is taken over');
      await queue.release(again);
      const neighbour = await waiting();
      t.match(await claim(kind), { sessionId: again.item.sessionId, isReclaimed: true });
      t.match(await claim(kind), { id: neighbour, isReclaimed: false }, 'and is not its neighbour’s');
    });

    t.test('what workers took and gave back, or never acked, nobody had begun', async (t) => {
      const id = await waiting();
      await queue.poll({ environmentId });
      await set(id, LAPSED);
      const again = await queue.poll({ environmentId });
      if (again === null) throw new Error('it is taken over');
      await queue.release(again);
      t.match(await claim(kind), { sessionId: again.item.sessionId, isReclaimed: false });
    });

    t.test('before its time it is not, after it is: by the time since its creation', async (t) => {
      const id = await enqueue({ environmentId, kind });
      await isNotClaimed(t, id, 'too young');
      await set(id, sql`created_at = clock_timestamp() - interval '29 seconds'`);
      await isNotClaimed(t, id, 'a second early');
      await set(id, sql`created_at = clock_timestamp() - interval '30 seconds'`);
      t.match(await queue.nextEligible(kind), { id, handOut: 0 });
      t.match(await claim(kind), { id, environmentId, kind, isReclaimed: false, state: 'active' });
    });

    t.test('never handed out it keeps its id, and its input, and leaves the wire for good', async (t) => {
      const id = await waiting({ input: { n: 1 }, metadata: { a: 'b' } });
      const candidate = await queue.nextEligible(kind);
      if (candidate === null) return t.fail('no candidate');
      const claimed = await queue.claim(candidate, { ttlSeconds: 60 });
      t.match(claimed, { id, input: { n: 1 }, metadata: { a: 'b' }, lease: { handOut: 1 }, isReclaimed: false });
      t.match(await row(id), { lane: 'process', state: 'active', worker_id: 'one' });
      t.strictSame((await history(database, { environmentId, id })).handOuts.length, 1);
      await queue.requeue(claimed?.lease as never);
      t.equal(await queue.poll({ environmentId }), null, 'given back, it is claimed, not polled');
      await fallBack(null);
      await queue.fail((await mustClaim(kind)).lease, 'x');
      t.equal(await queue.poll({ environmentId }), null);
      t.match(await row(id), { lane: 'process', state: 'queued' });
    });

    t.test('a live reservation is never pre-empted, nor what was acked or runs', async (t) => {
      const id = await waiting();
      const name = { environmentId, id };
      await queue.poll({ environmentId, reclaimOlderThanMs: 60_000 });
      await isNotClaimed(t, id, 'reserved');
      await queue.ack([name]);
      await isNotClaimed(t, id, 'starting');
      await set(id, LAPSED);
      await isNotClaimed(t, id, 'starting, lapsed: polls take it over');
      await queue.heartbeat([{ ...name, expectedLastHeartbeat: 'NO_HEARTBEAT', isRetry: false }]);
      await isNotClaimed(t, id, 'active');
      await queue.stop([{ ...name, force: false, reason: 'worker' }]);
      await isNotClaimed(t, id, 'stopping');
      await queue.stop([{ ...name, force: true, reason: 'worker' }]);
      await isNotClaimed(t, id, 'stopped');
    });

    for (const reached of ['reserved', 'acked', 'started', 'put back'] as const) {
      t.test(
        `handed out before (${reached}), it has a new id; history tells it, and who comes late gets 404`,
        async (t) => {
          const id = await waiting();
          const name = { environmentId, id };
          const handOut = await queue.poll({ environmentId, workerId: 'fleet', reclaimOlderThanMs: 60_000 });
          if (handOut === null) return t.fail('nothing was polled');
          const heartbeat = { ...name, expectedLastHeartbeat: 'NO_HEARTBEAT', isRetry: false };
          if (reached === 'put back') await queue.putBack(handOut, false);
          if (reached === 'acked' || reached === 'started') await queue.ack([name]);
          if (reached === 'started') await queue.heartbeat([heartbeat]);
          if (reached !== 'put back') await set(id, sql`lease_expires_at = ${AGO}`);
          await queue.sweep(); // puts back what was acked
          const seq = await seqOf(id);
          const claimed = await mustClaim(kind, 'platform');
          t.not(claimed.id, id);
          t.equal(claimed.lease.seq, seq);
          const isReclaimed = reached === 'acked' || reached === 'started';
          t.match(claimed, { isReclaimed, lease: { handOut: 2, workerId: 'platform' } });
          const now = await row(claimed.id);
          t.match(now, { lane: 'process', sessions_token_hash: null, lapsed_at: null, lapsed_state: null });

          const told = await history(database, name);
          t.match(told.work, { id: claimed.id, lane: 'process' });
          t.equal(told.handOuts.length, 2);
          const outcomes = {
            ...{ reserved: 'reservation_lapsed', 'put back': 'reservation_lapsed' },
            ...{ acked: 'startup_lease_lapsed', started: 'lease_lapsed' },
          };
          t.equal(told.handOuts[0]?.outcome, outcomes[reached]);
          t.match(told.handOuts[0], {
            ...{ workId: id, workerId: 'fleet' },
            acknowledgedAt: reached === 'acked' || reached === 'started' ? String : null,
            startedAt: reached === 'started' ? String : null,
            lapsedAt: reached === 'put back' ? null : String,
          });
          t.match(told.handOuts[1], { workId: claimed.id, workerId: 'platform', outcome: null });

          for (const late of [
            ...(await queue.ack([name])),
            ...(await queue.heartbeat([heartbeat])),
            ...(await queue.stop([{ ...name, force: false, reason: 'worker' }])),
            ...(await queue.stop([{ ...name, force: true, reason: 'worker' }])),
            ...(await queue.ack([{ environmentId, id: claimed.id }])),
          ]) {
            t.match(late, { code: 'not_found' });
          }
          t.equal(await queue.putBack(handOut, true), false);
          t.strictSame(await row(claimed.id), now, 'a late worker does no harm');
          await queue.complete(claimed.lease);
        },
      );
    }

    t.test('put back unseen it was never handed out: its id stays', async (t) => {
      const id = await waiting();
      const handOut = await queue.poll({ environmentId });
      if (handOut) await queue.putBack(handOut, true);
      t.match(await claim(kind), { id, isReclaimed: false, lease: { handOut: 1 } });
      t.equal((await history(database, { environmentId, id })).handOuts.length, 1);
    });

    t.test('a candidate read before a poll took the item is nobody’s, also once that lapsed', async (t) => {
      const id = await waiting();
      const stale = await queue.nextEligible(kind);
      if (stale === null) return t.fail('no candidate');
      await queue.poll({ environmentId });
      t.equal(await queue.claim(stale, { ttlSeconds: 60 }), null);
      await set(id, sql`lease_expires_at = ${AGO}`);
      t.equal(await queue.claim(stale, { ttlSeconds: 60 }), null);
      t.match(await row(id), { lane: 'wire' });
    });

    t.test('a paused environment, one not due and one at its cap keep their work', async (t) => {
      const id = await waiting();
      await pauseEnvironment(database, environmentId, DEFAULT_SETTINGS);
      await isNotClaimed(t, id, 'paused');
      await resumeEnvironment(database, environmentId, DEFAULT_SETTINGS);
      await set(id, sql`not_before = clock_timestamp() + interval '1 hour'`);
      await isNotClaimed(t, id, 'not due');
      await set(id, sql`not_before = ${AGO}, hand_out_count = 2, max_hand_outs = 2`);
      await isNotClaimed(t, id, 'its own cap');
      await set(id, sql`max_hand_outs = null`);
      await changeSettings(database, environmentId, { maxHandOuts: 2 }, DEFAULT_SETTINGS);
      await isNotClaimed(t, id, 'the cap of its environment');
      await changeSettings(database, environmentId, { maxHandOuts: 3 }, DEFAULT_SETTINGS);
      t.match(await claim(kind), { id });
    });

    t.test('a cap of hand-outs counts those to workers and to this lane together', async (t) => {
      const id = await waiting({ maxHandOuts: 3 });
      await queue.poll({ environmentId });
      await set(id, sql`lease_expires_at = ${AGO}`);
      const second = await mustClaim(kind);
      await set(second.id, LAPSED);
      const third = await mustClaim(kind);
      t.match(third, { isReclaimed: true, lease: { handOut: 3 } });
      await set(third.id, LAPSED);
      t.equal(await claim(kind), null);
      t.match(await row(third.id), { stop_reason: 'exhausted', hand_out_count: 3 });
      const neighbour = await lane.held({ kind, maxHandOuts: 2 });
      await set(neighbour.id, LAPSED);
      t.match(await claim(kind), { id: neighbour.id }, 'its own alone');
    });

    t.test('its successor is polled again, and so is what is put back', async (t) => {
      const id = await waiting({ sessionId: 'followed' });
      const claimed = await mustClaim(kind);
      await queue.enqueue({ environmentId, sessionId: 'followed', kind, followUp: true });
      await queue.complete(claimed.lease);
      const handOut = await queue.poll({ environmentId });
      t.match(handOut?.item, { sessionId: 'followed' });
      t.not(handOut?.item.id, id);
    });

    t.test('of several the most urgent, then the oldest; cloud work among it', async (t) => {
      const [first, second] = [await waiting(), await waiting()];
      const cloud = await enqueue({ kind });
      const urgent = await waiting({ priority: 5 });
      for (const id of [urgent, first, second, cloud]) t.match(await claim(kind), { id });
      t.equal(await claim(kind), null);
      t.equal(await claim('model_turn'), null);
    });

    t.test('another kind’s claim takes none of it', async (t) => {
      const id = await waiting();
      for (const other of ['model_turn', 'web_exec', 'mcp_exec', 'outputs_harvest'] as const) {
        t.equal(await claim(other), null);
        t.equal(await queue.nextEligible(other), null);
      }
      t.match(await row(id), { lane: 'wire' });
    });
  });
}

type Tap = Pick<typeof t, 'strictSame' | 'equal'>;
