import { sql } from 'kysely';
import pg from 'pg';
import t from 'tap';
import type { CallerTransaction } from '../../src/db/connect.ts';
import type { Lease } from '../../src/process/lease.ts';
import { LAPSED, newLane } from '../support/claims.ts';
import { databaseUrl, ENGINES, testClient } from '../support/harness.ts';
import { hold } from '../support/interleave.ts';

/** Instants as the row has them: the proof is compared with the whole of it. */
const ms = (text: unknown) => Date.parse(String(text));

for (const engine of ENGINES) {
  t.test(engine, async (t) => {
    const lane = await newLane(t, { engine });
    const { database, queue, selfHosted, enqueue, held, mustClaim, row, set } = lane;
    t.beforeEach(() => lane.empty());

    /** Every verb that wants the proof, without a transaction of the caller's. */
    const VERBS: Readonly<Record<string, (lease: Lease) => Promise<unknown>>> = {
      extend: (lease) => queue.extend(lease, 60),
      cancelRequested: (lease) => queue.cancelRequested(lease),
      updateOwned: (lease) => queue.updateOwned(lease, { stolen: 'yes' }),
      complete: (lease) => queue.complete(lease),
      'complete unless cancelled': (lease) => queue.complete(lease, { unlessCancelled: true }),
      requeue: (lease) => queue.requeue(lease),
      fail: (lease) => queue.fail(lease, 'stolen'),
      'fail for good': (lease) => queue.fail(lease, 'stolen', { isFinal: true }),
      assert: (lease) => database.transaction((transaction) => queue.assert(lease, transaction)),
    };
    const isLost = async (t: Tap, id: string, lease: Lease, where: string) => {
      const before = await row(id);
      for (const [name, verb] of Object.entries(VERBS)) {
        await t.rejects(verb(lease), { name: 'LeaseError', code: 'lease_lost' }, `${name}, ${where}`);
        t.strictSame(await row(id), before, `${name}, ${where}: as it was`);
      }
      t.match(await queue.renew(lease, 60), { outcome: 'lost', error: { code: 'lease_lost' } });
      t.equal(await queue.reclaim(lease, { ttlSeconds: 60 }), null, `reclaim, ${where}`);
      t.strictSame(await row(id), before, where);
    };

    /** The proof as the row has it. */
    const present = async (id: string, lease: Lease): Promise<Lease> => {
      const [found] = await database.rows(sql<{ at: string }>`
        select to_char(lease_expires_at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as at
        from ${database.names.workItems} where id = ${id}`);
      return { ...lease, expiresAt: found?.at ?? '' };
    };

    t.test('a renewal extends the lease and changes the proof; the one before is lost', async (t) => {
      const claimed = await held();
      const { id } = claimed;
      let { lease } = claimed;
      for (const ttlSeconds of [300, 400, 86_400]) {
        const { lease: next, isCancelRequested } = await queue.extend(lease, ttlSeconds);
        t.equal(isCancelRequested, false);
        t.ok(Object.isFrozen(next));
        const found = await row(id);
        t.equal(ms(found.lease_expires_at), ms(next.expiresAt));
        t.match(found, { lease_ttl_seconds: ttlSeconds, state: 'active', hand_out_count: 1 });
        await isLost(t, id, lease, `the one before ${ttlSeconds}`);
        lease = next;
      }
    });

    t.test('a lease is never shortened, and its proof changes all the same', async (t) => {
      const { id, lease } = await held();
      const long = (await queue.extend(lease, 3_600)).lease;
      const short = (await queue.extend(long, 1)).lease;
      t.ok(short.expiresAt > long.expiresAt, `${short.expiresAt} after ${long.expiresAt}`);
      t.ok(ms(short.expiresAt) - ms(long.expiresAt) < 1_000);
      await isLost(t, id, long, 'the longer one');
      await queue.complete(short);
    });

    t.test('a lapsed lease that nobody took is renewed, and then lives', async (t) => {
      const { id, lease } = await held();
      await set(id, LAPSED);
      const { lease: renewed } = await queue.extend(await present(id, lease), 60);
      t.equal(await lane.claim(), null, 'it lives');
      await queue.complete(renewed);
    });

    t.test('renew tells three outcomes, and throws only for what it could not ask', async (t) => {
      const { lease } = await held();
      const renewed = await queue.renew(lease, 60);
      t.match(renewed, { outcome: 'renewed', isCancelRequested: false, lease: { handOut: 1 } });
      t.match(await queue.renew(lease, 60), { outcome: 'lost', error: { code: 'lease_lost' } });
      for (const ttlSeconds of [0, 86_401, 0.5]) {
        await t.rejects(queue.renew(lease, ttlSeconds), { code: 'invalid_request' });
        await t.rejects(queue.extend(lease, ttlSeconds), { code: 'invalid_request' });
      }
    });

    t.test('a proof with any one field forged is lost, and changes nothing', async (t) => {
      const other = await held();
      const { id, lease } = await held();
      const { expiresAt } = lease;
      const micro = expiresAt.replace(/\d(?=Z$)/, (digit) => String((Number(digit) + 1) % 10));
      const forged: readonly Partial<Lease>[] = [
        { seq: other.lease.seq },
        { seq: '999999' },
        { workerId: 'One' },
        { handOut: 2 },
        { expiresAt: micro },
        { expiresAt: '2999-01-01T00:00:00Z' },
        { expiresAt: other.lease.expiresAt },
      ];
      for (const field of forged) await isLost(t, id, { ...lease, ...field }, JSON.stringify(field));
      await queue.complete(lease);
      await queue.complete(other.lease);
    });

    t.test('a proof that is no proof is refused by name', async (t) => {
      const { id, lease } = await held();
      const before = await row(id);
      const broken: Record<string, unknown>[] = [
        ...['', 'x', '1 ', 5, null].map((seq) => ({ seq })),
        ...['', 'a\0', 7].map((workerId) => ({ workerId })),
        ...[0, 1.5, '1', 2 ** 31].map((handOut) => ({ handOut })),
        ...['', 'now', '2020-02-30T00:00:00Z', 5].map((expiresAt) => ({ expiresAt })),
      ];
      for (const field of broken) {
        const message = new RegExp(`lease\\.${Object.keys(field)[0]}`);
        for (const [name, verb] of Object.entries(VERBS)) {
          const asked = verb({ ...lease, ...field } as Lease);
          await t.rejects(asked, { code: 'invalid_request', message }, `${name} ${JSON.stringify(field)}`);
        }
      }
      t.strictSame(await row(id), before);
    });

    t.test('what is no lease, candidate, list, option or transaction at all is refused by name', async (t) => {
      const { id, lease } = await held();
      const before = await row(id);
      const refused = (asked: Promise<unknown>, message: RegExp) =>
        t.rejects(asked, { code: 'invalid_request', message }, `${message}`);
      const by = { ttlSeconds: 60 };
      for (const value of [undefined, null, 5, 'text'] as never[]) {
        for (const verb of Object.values(VERBS)) await refused(verb(value), /^lease must/);
        if (typeof value !== 'string') await refused(queue.claim(value, by), /^what is claimed must/);
        await refused(queue.expired(value), /^kinds must/);
        await refused(queue.assert(lease, value), /^transaction must/);
        if (value === undefined) continue;
        await refused(queue.complete(lease, {}, value), /^transaction must/);
        await refused(queue.complete(lease, value), /^options must/);
        await refused(queue.fail(lease, 'x', value), /^options must/);
      }
      for (const transaction of [{ query: async () => ({ rows: [] }) }, database.kysely] as never[]) {
        await refused(queue.complete(lease, transaction), /options must .*: a transaction comes after/);
        await refused(queue.fail(lease, 'x', transaction), /options must/);
      }
      for (const value of [undefined, 5] as never[]) {
        await t.rejects(queue.requestCancel({ environmentId: value, id }), { code: 'not_found' });
        await t.rejects(queue.requestCancel({ environmentId: selfHosted, id: value }), { code: 'not_found' });
        await t.rejects(queue.updateOwned(lease, value), { code: 'invalid_metadata' });
      }
      t.strictSame(await row(id), before);
    });

    t.test('an option that is neither true nor false is refused by name before the database sees it', async (t) => {
      const { id, lease } = await held();
      const before = await row(id);
      for (const value of ['yes', 1, null] as unknown as boolean[]) {
        await t.rejects(queue.complete(lease, { unlessCancelled: value }), {
          code: 'invalid_request',
          message: /^unlessCancelled must be/,
        });
        await t.rejects(queue.fail(lease, 'x', { isFinal: value }), {
          code: 'invalid_request',
          message: /^isFinal must be/,
        });
      }
      t.strictSame(await row(id), before);
    });

    t.test('what a worker holds by polling is held by no proof of this lane', async (t) => {
      const id = await enqueue({ environmentId: selfHosted, kind: 'tool_exec' });
      await queue.poll({ environmentId: selfHosted, workerId: 'one', reclaimOlderThanMs: 60_000 });
      const { seq } = await row(id);
      const lease = { seq: String(seq), workerId: 'one', handOut: 1, expiresAt: '', askedAtMs: 0, ttlSeconds: 60 };
      await isLost(t, id, await present(id, lease), 'reserved');
      const heartbeat = { environmentId: selfHosted, id, expectedLastHeartbeat: 'NO_HEARTBEAT', isRetry: false };
      await queue.ack([{ environmentId: selfHosted, id }]);
      await queue.heartbeat([heartbeat]);
      await isLost(t, id, await present(id, lease), 'active');
      await set(id, LAPSED);
      await isLost(t, id, await present(id, lease), 'lapsed');
      t.strictSame(await queue.expired(['tool_exec']), []);
    });

    t.test('once an item has ended, was given back or taken over, its proof is lost', async (t) => {
      for (const end of ['complete', 'requeue', 'fail', 'taken over', 'session cancelled'] as const) {
        const { id, lease, sessionId } = await held();
        if (end === 'complete') await queue.complete(lease);
        if (end === 'requeue') await queue.requeue(lease);
        if (end === 'fail') await queue.fail(lease, 'x');
        if (end === 'taken over') {
          await set(id, LAPSED);
          await mustClaim();
        }
        if (end === 'session cancelled') await queue.cancelSession(lane.cloud, sessionId);
        await isLost(t, id, lease, end);
        await lane.empty();
      }
    });

    t.test('the owner writes progress: merged, kept over a hand-over, refused when it is invalid', async (t) => {
      const { id, lease } = await held({ metadata: { kept: '1', gone: '2' } });
      const changed = await queue.updateOwned(lease, { step: '3', gone: null });
      t.match(changed, { id, metadata: { kept: '1', step: '3' }, state: 'active' });
      const before = await row(id);
      for (const patch of [{ x: 'y'.repeat(513) }, { ['k'.repeat(65)]: 'v' }, { n: 5 as unknown as string }]) {
        await t.rejects(queue.updateOwned(lease, patch), { code: 'invalid_metadata' });
      }
      t.strictSame(await row(id), before);
      await queue.requeue(lease);
      t.strictSame((await mustClaim()).metadata, { kept: '1', step: '3' });
    });

    t.test('assert is refused outside a transaction, whatever it is given instead', async (t) => {
      const { id, lease } = await held();
      const before = await row(id);
      const refused = (transaction: unknown, what: string) =>
        t.rejects(queue.assert(lease, transaction as CallerTransaction), { code: 'invalid_request' }, what);
      await refused(undefined, 'nothing');
      await refused(database.kysely, 'a Kysely instance');
      await refused(
        { query: (text: string) => database.rows(sql.raw(text)).then((rows) => ({ rows })) },
        'a query function',
      );
      await database.kysely.connection().execute((connection) => refused(connection, 'a connection'));
      if (engine === 'postgres') {
        const pool = new pg.Pool({ connectionString: databaseUrl() });
        await refused(pool, 'a pool');
        await pool.end();
        const client = await testClient(t);
        await refused(client, 'a client without a transaction');
        await client.query('begin');
        await queue.assert(lease, client);
        await client.query('rollback');
      }
      t.strictSame(await row(id), before);
    });

    t.test(
      'in a transaction it holds: no claim takes the item before the end, also when the lease lapses',
      async (t) => {
        if (engine === 'pglite') return t.pass('one connection: nothing else runs during a transaction');
        const { id, lease } = await held();
        const asserted = await hold(t, database, (_, client) => queue.assert(lease, client));
        t.equal(await lane.claim(), null);
        await asserted.commit();
        await set(id, LAPSED);
        const lapsed = await present(id, lease);
        const again = await hold(t, database, (_, client) => queue.assert(lapsed, client));
        t.equal(await lane.claim(), null, 'passed over');
        t.equal(await queue.reclaim(lapsed, { ttlSeconds: 60 }), null);
        await again.commit();
        t.match(await lane.claim(), { id, isReclaimed: true });
      },
    );
  });
}

type Tap = Pick<typeof t, 'rejects' | 'strictSame' | 'match' | 'equal'>;
