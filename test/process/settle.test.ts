import { Kysely, PostgresDialect, sql } from 'kysely';
import pg from 'pg';
import t from 'tap';
import type { CallerTransaction } from '../../src/db/connect.ts';
import type { Claimed } from '../../src/process/claim.ts';
import { LAPSED, newLane } from '../support/claims.ts';
import { databaseUrl } from '../support/harness.ts';

const lane = await newLane(t);
const { database, queue, cloud, enqueue, claim, mustClaim, held, row, set } = lane;
t.beforeEach(() => lane.empty());

/** The state that a caller's application keeps beside: one row an item. */
const results = sql.id(database.schema, 'results');
await database.rows(sql`create table ${results} (work text primary key)`);
const written = async () =>
  (await database.rows(sql<{ work: string }>`select work from ${results}`)).map((r) => r.work);

type Run = (act: (transaction: CallerTransaction) => Promise<unknown>, end: 'commit' | 'rollback') => Promise<void>;

/** A caller's own connection, whose type parsers are its own, too. */
const byClient =
  (types?: pg.CustomTypesConfig): Run =>
  async (act, end) => {
    const client = new pg.Client({ connectionString: databaseUrl(), ...(types === undefined ? {} : { types }) });
    await client.connect();
    try {
      await client.query('begin');
      await act(client);
      await client.query(end);
    } finally {
      await client.end();
    }
  };
const asText: pg.CustomTypesConfig = { getTypeParser: () => (value: unknown) => value as string };

const ROLLBACK = new Error('rolled back by the caller');
const byKysely: Run = async (act, end) => {
  const kysely = new Kysely({
    dialect: new PostgresDialect({ pool: new pg.Pool({ connectionString: databaseUrl() }) }),
  });
  const run = kysely.transaction().execute(async (transaction) => {
    await act(transaction);
    if (end === 'rollback') throw ROLLBACK;
  });
  await run.catch((error) => {
    if (error !== ROLLBACK) throw error;
  });
  await kysely.destroy();
};
const CALLERS: Readonly<Record<string, Run>> = {
  'a client': byClient(),
  'a client that parses nothing': byClient(asText),
  'a Kysely transaction': byKysely,
};

const insert = async (transaction: CallerTransaction, work: string) =>
  database.rows(sql`insert into ${results} (work) values (${work})`, transaction);

type Act = (item: Claimed, transaction: CallerTransaction) => Promise<unknown>;
const VERBS: Readonly<Record<string, { act: Act; answer: object; after: object }>> = {
  complete: {
    act: ({ lease }, tx) => queue.complete(lease, {}, tx),
    answer: { state: 'stopped', reason: 'worker', nextAttemptAt: null },
    after: { state: 'stopped', stop_reason: 'worker', lease_expires_at: null, stopped_at: String, attempt: 1 },
  },
  requeue: {
    act: ({ lease }, tx) => queue.requeue(lease, tx),
    answer: { state: 'queued', reason: null, nextAttemptAt: null },
    after: { state: 'queued', stop_reason: null, stopped_at: null, stop_requested_at: null, attempt: 1 },
  },
  fail: {
    act: ({ lease }, tx) => queue.fail(lease, new TypeError('broken'), {}, tx),
    answer: { state: 'queued', reason: null, nextAttemptAt: String },
    after: { state: 'queued', attempt: 2, last_error: 'TypeError: broken', next_attempt_at: String },
  },
  updateOwned: {
    act: ({ lease }, tx) => queue.updateOwned(lease, { step: '2' }, tx),
    answer: { state: 'active', metadata: { step: '2' } },
    after: { state: 'active', metadata: { step: '2' } },
  },
  assert: {
    act: ({ lease }, tx) => queue.assert(lease, tx).then(() => ({ held: true })),
    answer: { held: true },
    after: { state: 'active' },
  },
  requestCancel: {
    act: ({ id, environmentId }, tx) => queue.requestCancel({ environmentId, id }, tx),
    answer: { accepted: true, state: 'active' },
    after: { state: 'active', cancel_requested_at: String },
  },
  cancelSession: {
    act: async ({ environmentId, sessionId }, tx) => (await queue.cancelSession(environmentId, sessionId, tx))[0],
    answer: { state: 'stopped' },
    after: { state: 'stopped', stop_reason: 'cancelled', lease_expires_at: null },
  },
};

for (const [caller, run] of Object.entries(CALLERS)) {
  for (const [name, { act, answer, after }] of Object.entries(VERBS)) {
    t.test(`${name} in ${caller} commits and rolls back with the rest of it, and does neither by itself`, async (t) => {
      const item = await held();
      const before = await row(item.id);
      const both = async (transaction: CallerTransaction) => {
        t.match(await act(item, transaction), answer);
        t.strictSame(await row(item.id), before, 'not committed yet');
        await insert(transaction, item.id);
      };
      await run(both, 'rollback');
      t.strictSame(await row(item.id), before);
      t.notOk((await written()).includes(item.id));
      await run(both, 'commit');
      t.match(await row(item.id), after);
      t.ok((await written()).includes(item.id));
    });
  }

  t.test(`a late claimant's settlement in ${caller} rolls back whole, whatever took the item from it`, async (t) => {
    const TAKEN: Readonly<Record<string, (item: Claimed) => Promise<unknown>>> = {
      'its session was cancelled': ({ environmentId, sessionId }) => queue.cancelSession(environmentId, sessionId),
      'another took over': async ({ id }) => {
        await set(id, LAPSED);
        await mustClaim('model_turn', 'two');
      },
    };
    for (const [how, take] of Object.entries(TAKEN)) {
      for (const [name, { act }] of Object.entries(VERBS)) {
        if (name === 'requestCancel' || name === 'cancelSession') continue;
        const item = await held();
        await take(item);
        const before = await row(item.id);
        const settlement = run(async (transaction) => {
          await insert(transaction, item.id);
          await act(item, transaction);
        }, 'commit');
        await t.rejects(settlement, { code: 'lease_lost' }, `${name}, ${how}`);
        t.strictSame(await row(item.id), before);
        t.notOk((await written()).includes(item.id));
        await lane.empty();
      }
    }
  });
}

t.test('a transaction survives a refused verb: the caller decides what becomes of it', async (t) => {
  const item = await held();
  const lease = { ...item.lease, handOut: 9 };
  await byClient()(async (transaction) => {
    await t.rejects(queue.complete(lease, {}, transaction), { code: 'lease_lost' });
    await t.rejects(queue.assert(lease, transaction), { code: 'lease_lost' });
    await insert(transaction, 'another');
  }, 'commit');
  t.ok((await written()).includes('another'));
});

t.test('an item given back is in its slot, due at once, in its old place, its attempt unspent', async (t) => {
  const item = await held({ notBefore: '2020-01-01T00:00:00Z' });
  const younger = await enqueue();
  await queue.requeue(item.lease);
  t.match(await row(item.id), { state: 'queued', lease_expires_at: null, next_attempt_at: null, attempt: 1 });
  const request = { environmentId: cloud, sessionId: item.sessionId, kind: item.kind };
  t.match(await queue.enqueue(request), { created: false, item: { id: item.id } }, 'it covers its session');
  t.match(await claim(), { id: item.id, attempt: 1, isReclaimed: false, lease: { handOut: 2 } });
  t.match(await row(item.id), { hand_over_count: 0 });
  t.match(await claim(), { id: younger });
});

t.test('a completed item stays as it is, and its slot is free', async (t) => {
  const item = await held();
  t.match(await queue.complete(item.lease), { state: 'stopped', reason: 'worker', nextAttemptAt: null });
  const found = await row(item.id);
  t.match(found, { stop_requested_at: String, cancel_requested_at: null, last_error: null });
  await queue.sweep();
  t.equal(await claim(), null);
  t.strictSame(await row(item.id), found);
  t.match(await queue.enqueue({ environmentId: cloud, sessionId: item.sessionId, kind: item.kind }), { created: true });
});
