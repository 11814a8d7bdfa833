import { sql } from 'kysely';
import t from 'tap';
import { changeSettings } from '../../src/control/settings.ts';
import { LIMITS } from '../../src/queue/limits.ts';
import { requeueSetAside } from '../../src/queue/requeue.ts';
import { DEFAULT_SETTINGS } from '../../src/queue/settings.ts';
import { AGO, LAPSED, newLane } from '../support/claims.ts';
import { ENGINES } from '../support/harness.ts';

const DAY_SECONDS = 86_400;

for (const engine of ENGINES) {
  t.test(engine, async (t) => {
    const lane = await newLane(t, { engine, settings: { maxAttempts: 4, maxHandOvers: 2 } });
    const { database, queue, cloud, enqueue, claim, mustClaim, held, row, set } = lane;
    t.beforeEach(() => lane.empty());

    /** How long a failure of that attempt keeps an item back, in seconds by the database's clock. */
    const backoff = async (attempt: number): Promise<number> => {
      const { id, lease } = await held({ maxAttempts: LIMITS.attempts });
      await set(id, sql`attempt = ${attempt}`);
      const { state, reason, nextAttemptAt } = await queue.fail(lease, 'x');
      t.match([state, reason], ['queued', null]);
      const [found] = await database.rows(sql<{ seconds: number; answered: boolean; attempt: number }>`
        select extract(epoch from next_attempt_at - clock_timestamp())::float8 as seconds,
          next_attempt_at = ${nextAttemptAt}::timestamptz as answered, attempt from ${database.names.workItems} where id = ${id}`);
      t.match(found, { answered: true, attempt: attempt + 1 });
      t.equal(await claim(), null, 'invisible until it is due');
      await set(id, sql`next_attempt_at = ${AGO}`);
      t.match(await mustClaim(), { id, attempt: attempt + 1, isReclaimed: false });
      t.match(await row(id), { next_attempt_at: null });
      await lane.empty();
      return found?.seconds ?? Number.NaN;
    };

    t.test('a failed item waits for half to all of 1, 2, 4 … seconds, at most a day, at any attempt', async (t) => {
      for (const attempt of [1, 2, 3, 5, 10, 17, 18, 19, 100, LIMITS.attempts - 1]) {
        const most = Math.min(DAY_SECONDS, 2 ** (attempt - 1));
        const seconds = await backoff(attempt);
        // Less what it took to look at it.
        t.ok(seconds > most / 2 - 2 && seconds <= most, `attempt ${attempt}: ${seconds} s of ${most} s`);
      }
    });

    t.test('the wait is not the same for all', async (t) => {
      const waits: number[] = [];
      for (let n = 0; n < 12; n++) waits.push(await backoff(30));
      const [least, most] = [Math.min(...waits), Math.max(...waits)];
      t.ok(most - least > 0.05 * DAY_SECONDS, `${least} to ${most}`);
      t.ok(most <= DAY_SECONDS && least > DAY_SECONDS / 2 - 2);
    });

    t.test('at its last attempt an item is set aside with its last error, and put back anew', async (t) => {
      const input = { n: 1 };
      const { id, sessionId, ...first } = await held({ maxAttempts: 2, priority: 3, input, maxHandOuts: 9 });
      t.match(await queue.fail(first.lease, 'the first'), { state: 'queued' });
      await set(id, sql`next_attempt_at = ${AGO}`);
      const last = await mustClaim();
      t.match(last, { attempt: 2, maxAttempts: 2 });
      const failed = await queue.fail(last.lease, new RangeError('the last'));
      t.strictSame(failed, { state: 'stopped', reason: 'failed', nextAttemptAt: null, retryInMs: null });
      t.match(await row(id), {
        ...{ state: 'stopped', stop_reason: 'failed', last_error: 'RangeError: the last', attempt: 2 },
        ...{ next_attempt_at: null, lease_expires_at: null, stopped_at: String, stop_requested_at: String },
      });
      t.equal(await claim(), null);
      const before = await row(id);
      const made = await requeueSetAside(database, { environmentId: cloud, id });
      t.match(made, {
        ...{
          requeuedFrom: id,
          attempt: 1,
          maxAttempts: 2,
          maxHandOuts: 9,
          priority: 3,
          lastError: null,
          lane: 'process',
        },
        ...{ handOutCount: 0, handOverCount: 0, nextAttemptAt: null, cancelRequestedAt: null, state: 'queued' },
      });
      t.strictSame(await row(id), before, 'the old one stays as it is');
      t.match(await claim(), { id: made.id, sessionId, input, attempt: 1, isReclaimed: false });
    });

    t.test('without a number of its own an item has as many attempts as the process says', async (t) => {
      const { id, lease } = await held();
      await set(id, sql`attempt = 3`);
      t.match(await queue.fail(lease, 'x'), { state: 'queued' });
      await set(id, sql`next_attempt_at = null`);
      t.match(await queue.fail((await mustClaim()).lease, 'x'), { state: 'stopped', reason: 'failed' });
    });

    t.test('one that is beyond its limit, and one that is final, are set aside at once', async (t) => {
      const beyond = await held({ maxAttempts: 2 });
      await set(beyond.id, sql`attempt = 7`);
      t.match(await queue.fail(beyond.lease, 'x'), { reason: 'failed' });
      const { lease, id } = await held();
      t.match(await queue.fail(lease, 'x', { isFinal: true }), { reason: 'failed', nextAttemptAt: null });
      t.match(await row(id), { attempt: 1, last_error: 'x' });
    });

    t.test('whatever is thrown is kept as text that fits', async (t) => {
      const cyclic: Record<string, unknown> = {};
      cyclic.self = cyclic;
      const unnamed = new Error('x');
      Object.defineProperty(unnamed, 'message', { value: Object.create(null) });
      const THROWN: readonly [unknown, RegExp][] = [
        ['a text', /^a text$/],
        [new TypeError('typed'), /^TypeError: typed$/],
        ['nul \0 inside', /^nul \ufffd inside$/],
        ['lone \ud800 surrogate', /^lone \ufffd surrogate$/],
        ['x'.repeat(1_048_576), /^x{2000}$/],
        ['😀'.repeat(500_000), /^(😀){2000}$/u],
        [`a${'😀'.repeat(500_000)}`, /^a(😀){1999}$/u],
        [undefined, /^undefined$/],
        [null, /^null$/],
        [5n, /^5n$/],
        [Symbol('s'), /Symbol\(s\)/],
        [{ code: 7 }, /code: 7/],
        [cyclic, /Circular/],
        [Object.create(null), /null prototype/],
        [unnamed, /cannot be written/],
        [
          {
            toString: () => {
              throw new Error('no text');
            },
          },
          /./,
        ],
        ['', /^$/],
      ];
      for (const [thrown, kept] of THROWN) {
        const { id, lease } = await held({ maxAttempts: 1 });
        t.match(await queue.fail(lease, thrown), { reason: 'failed' });
        const { last_error: text } = await row(id);
        t.match(text, kept);
        await lane.empty();
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
        return claim();
      },
    };
    const takeOver = async (id: string) => {
      await set(id, LAPSED);
      t.match(await mustClaim(), { id, isReclaimed: true });
    };

    for (const [name, way] of Object.entries(WAYS)) {
      t.test(
        `taken over more often than it may be, an item is exhausted by ${name}, its attempts unspent`,
        async (t) => {
          const { id } = await held();
          await takeOver(id);
          await takeOver(id);
          const live = await row(id);
          t.match(live, { hand_over_count: 2, hand_out_count: 3 });
          t.equal(await way(), null);
          t.strictSame(await row(id), live, 'while its lease lives it is let be');
          await set(id, LAPSED);
          const { lease_expires_at: lapsedAt } = await row(id);
          t.equal(await way(), null);
          t.match(await row(id), {
            ...{ state: 'stopped', stop_reason: 'exhausted', attempt: 1, lapsed_at: lapsedAt, lease_expires_at: null },
            ...{ hand_over_count: 2, stopped_at: String, stop_requested_at: null },
          });
          const made = await requeueSetAside(database, { environmentId: cloud, id });
          t.match(await claim(), { id: made.id });
          t.match(await row(made.id), { hand_over_count: 0 });
        },
      );

      t.test(`a cap of hand-outs, its own before its environment's, counts instead: by ${name}`, async (t) => {
        await changeSettings(database, cloud, { maxHandOuts: 1 }, DEFAULT_SETTINGS);
        const { id: own } = await held({ maxHandOuts: 4 });
        for (let n = 0; n < 3; n++) await takeOver(own);
        await set(own, LAPSED);
        t.equal(await way(), null);
        t.match(await row(own), { stop_reason: 'exhausted', hand_out_count: 4 });
        const { id } = await held();
        await set(id, LAPSED);
        t.equal(await way(), null);
        t.match(await row(id), { stop_reason: 'exhausted', hand_out_count: 1 });
        await changeSettings(database, cloud, { maxHandOuts: null }, DEFAULT_SETTINGS);
      });
    }

    t.test('giving back and failing are no hand-overs, however often', async (t) => {
      const id = await enqueue({ maxHandOuts: 2 });
      for (let n = 0; n < 5; n++) await queue.requeue((await mustClaim()).lease);
      await queue.fail((await mustClaim()).lease, 'x');
      await set(id, sql`next_attempt_at = ${AGO}`);
      await mustClaim();
      await takeOver(id);
      t.match(await row(id), { hand_over_count: 1, hand_out_count: 8, attempt: 2 });
    });
  });
}
