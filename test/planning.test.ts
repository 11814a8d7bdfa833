import { type RawBuilder, sql } from 'kysely';
import t from 'tap';
import { createEnvironment } from '../src/control/environments.ts';
import { pruneControl } from '../src/control/prune.ts';
import { createQueue } from '../src/create-queue.ts';
import { type Database, within } from '../src/db/connect.ts';
import { cancelSession } from '../src/queue/cancel-session.ts';
import { only } from '../src/queue/errors.ts';
import type { WorkKind } from '../src/queue/items.ts';
import { poll } from '../src/queue/poll.ts';
import { prune } from '../src/queue/prune.ts';
import { DEFAULT_SETTINGS } from '../src/queue/settings.ts';
import { testDatabase } from './support/harness.ts';

const CALLS = 20;
/** Postgres plans a named statement anew five times before it may settle on one plan. */
const PLANNED_ANEW_MAX = 5;

t.test('what workers call is planned a few times, and then runs as it is', async (t) => {
  const database = await testDatabase(t, 'postgres', { poolConnectionsMax: 1 });
  const queue = createQueue({ database });
  t.teardown(() => queue.close());
  const { id: environmentId } = await createEnvironment(database, { name: 'planned', type: 'self_hosted' });
  for (let n = 0; n < CALLS; n++) {
    await queue.enqueue({ environmentId, sessionId: `${n}` });
    const id = (await queue.poll({ environmentId }))?.item.id ?? '';
    only(await queue.ack([{ environmentId, id }]));
    only(await queue.heartbeat([{ environmentId, id, expectedLastHeartbeat: 'NO_HEARTBEAT', isRetry: false }]));
    only(await queue.stop([{ environmentId, id, force: true, reason: 'worker' }]));
  }
  const plans = await database.rows(sql<{ text: string; anew: number; settled: number }>`
    select statement as text, custom_plans::integer as anew, generic_plans::integer as settled
    from pg_prepared_statements where statement like ${`%${database.schema}%`} and custom_plans + generic_plans >= ${CALLS}`);
  t.equal(plans.length, 5, 'enqueue, poll, ack, heartbeat, stop');
  for (const { text, anew, settled } of plans) {
    t.ok(anew <= PLANNED_ANEW_MAX, `${anew} times anew, ${settled} times as it was: ${text.slice(0, 80)}`);
  }
});

/** Whole readings of the items' table, by what its connection has not yet reported. */
const scans = async ({ rows, schema }: Database): Promise<number> => {
  const [row] = await rows(sql<{ scans: number }>`
    select coalesce(seq_scan, 0)::integer as scans from pg_stat_xact_user_tables
    where schemaname = ${schema} and relname = 'work_items'`);
  return row?.scans ?? 0;
};

t.test('what workers call finds its rows by index, also where it was planned on an empty table', async (t) => {
  const plain = await testDatabase(t, 'postgres', { poolConnectionsMax: 1 });
  const { id: environmentId } = await createEnvironment(plain, { name: 'indexed', type: 'self_hosted' });
  // In one transaction no statistics are gathered in between: the plans stay those of the empty table.
  const scanned = await plain.transaction(async (transaction) => {
    const database = within(plain, transaction);
    const queue = createQueue({ database });
    const before = await scans(database);
    for (let n = 0; n < CALLS; n++) {
      await queue.enqueue({ environmentId, sessionId: `${n}`, requestId: `${n}` });
      const id = (await queue.poll({ environmentId }))?.item.id ?? '';
      only(await queue.ack([{ environmentId, id }]));
      only(await queue.heartbeat([{ environmentId, id, expectedLastHeartbeat: 'NO_HEARTBEAT', isRetry: false }]));
      only(await queue.stop([{ environmentId, id, force: true, reason: 'worker' }]));

      await queue.enqueue({ environmentId, sessionId: `held ${n}`, maxAttempts: 2 });
      for (const say of ['release', 'failed', 'succeeded'] as const) {
        const handOut = await queue.poll({ environmentId });
        if (handOut === null) throw new Error('nothing was handed out');
        if (say === 'release') await queue.release(handOut);
        else await queue.reportOutcome(handOut, { status: say });
        if (say === 'failed') await queue.enqueue({ environmentId, sessionId: `held ${n} again` });
      }
      await cancelSession(database, environmentId, `held ${n}`);
    }
    await queue.close();
    return (await scans(database)) - before;
  });
  t.equal(scanned, 0);
});

/** The planner itself looks at the ends of an index. */
const PROBED_MAX = 20;

/** Rows read of a table by this transaction, whatever became of them. */
const rowsRead = async ({ rows, schema }: Database, table: string): Promise<number> => {
  const [row] = await rows(sql<{ read: number }>`
    select (coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0))::integer as read from pg_stat_xact_user_tables
    where schemaname = ${schema} and relname = ${table}`);
  return row?.read ?? 0;
};

t.test('pruning does not read what is to be kept, however much of it and of environments there is', async (t) => {
  const plain = await testDatabase(t, 'postgres', { poolConnectionsMax: 1 });
  const { workItems, idempotencyKeys, auditLog } = plain.names;
  for (const name of ['one', 'two', 'three']) {
    const { id } = await createEnvironment(plain, { name, type: 'self_hosted' });
    await plain.rows(sql`
      insert into ${workItems} (id, environment_id, session_id, kind, lane, state, stop_reason, stopped_at)
      select ${name}::text || n, ${id}, n::text, 'tool_exec', 'wire', 'stopped', 'worker', now() - interval '1 hour'
      from generate_series(1, 2000) n`);
  }
  await plain.rows(sql`insert into ${idempotencyKeys} (caller, key, request_hash, answer)
    select 'caller', n::text, 'hash', '{}' from generate_series(1, 5000) n`);
  await plain.rows(sql`insert into ${auditLog} (key_id, key_name, action, status, request_id)
    select 'key', 'name', 'action', 200, 'req' from generate_series(1, 5000) n`);
  for (const table of [workItems, idempotencyKeys, auditLog]) await plain.rows(sql`analyze ${table}`);

  await plain.transaction(async (transaction) => {
    const database = within(plain, transaction);
    await prune(database, { retentionDays: 7 });
    await pruneControl(database, { retentionDays: 7 });
    for (const table of ['work_items', 'idempotency_keys', 'audit_log']) {
      const read = await rowsRead(database, table);
      t.ok(read <= PROBED_MAX, `${read} rows of ${table}`);
    }
  });
});

/** So many a claim reads of each sort, twice: to choose, and to lock. */
const CLAIM_READS_MAX = 100;
const LIVE = 2_000;

t.test('a claim and a renewal read neither the queue nor what waits, however they were planned', async (t) => {
  const plain = await testDatabase(t, 'postgres', { poolConnectionsMax: 1 });
  const { workItems, environments } = plain.names;
  const { id } = await createEnvironment(plain, { name: 'crowded', type: 'self_hosted' });
  await plain.rows(sql`update ${environments} set fallback_after_ms = 60000`);
  const by = { ttlSeconds: 60, workerId: 'one' };
  const verbs = async (database: Database, kind: WorkKind) => {
    const queue = createQueue({ database });
    await queue.nextEligible(kind);
    const claimed = await queue.claim(kind, by);
    if (claimed !== null) {
      await queue.extend(claimed.lease, 60);
      t.equal(await queue.reclaim(claimed.lease, by), null);
    }
    await queue.close();
  };
  const fill = (columns: RawBuilder<unknown>, values: RawBuilder<unknown>, name: string, count: number) =>
    plain.rows(sql`
      insert into ${workItems} (id, environment_id, session_id, state, kind, lane, ${columns})
      select ${name}::text || n, ${id}, ${name}::text || n, ${values} from generate_series(1, ${count}::integer) n`);
  const kinds = ['model_turn', 'tool_exec', 'web_exec'] as const;
  // As long as the table is empty: the plans are of then.
  for (let n = 0; n < CALLS; n++) for (const kind of kinds) await verbs(plain, kind);
  await fill(sql`priority`, sql`'queued', 'model_turn', 'process', 0`, 'queued', 20_000);
  await fill(
    sql`next_attempt_at`,
    sql`'queued', 'model_turn', 'process', now() + interval '1 hour'`,
    'waiting',
    10_000,
  );
  await fill(sql`created_at`, sql`'queued', 'tool_exec', 'wire', now() + interval '1 hour'`, 'young', 10_000);
  const later = sql`'queued', 'tool_exec', 'wire', now() - interval '1 hour', now() + interval '1 hour'`;
  await fill(sql`created_at, not_before`, later, 'later', 10_000);
  const then = sql`'queued', 'tool_exec', 'wire', now() - interval '1 hour', now() - interval '1 minute'`;
  await fill(sql`created_at, not_before`, then, 'for then', 10_000);
  await fill(sql`next_attempt_at`, sql`'queued', 'web_exec', 'process', now() - interval '1 hour'`, 'due', 10_000);
  await fill(sql`created_at`, sql`'queued', 'tool_exec', 'wire', now() - interval '1 hour'`, 'refused', 10_000);
  const isBounded = async (when: string, kinds: readonly WorkKind[], most: number) => {
    for (const kind of kinds) {
      await plain.transaction(async (transaction) => {
        const database = within(plain, transaction);
        const [scanned, before] = [await scans(database), await rowsRead(database, 'work_items')];
        await verbs(database, kind);
        t.equal(await scans(database), scanned, `${kind}, ${when}`);
        const read = (await rowsRead(database, 'work_items')) - before;
        t.ok(read <= most, `${read} rows, ${kind}, ${when}`);
      });
    }
  };
  const plan = async () => {
    await plain.rows(sql`analyze ${workItems}`);
    await plain.rows(sql`discard plans`);
  };
  await isBounded('planned on an empty table', kinds, CLAIM_READS_MAX);
  await plan();
  await isBounded('planned on a full one', kinds, CLAIM_READS_MAX);

  // No index may name what a renewal writes: which of the held ones have lapsed is seen by looking.
  const held = sql`'active', 'model_turn', 'process', now() + interval '1 hour', 'x', 1`;
  await fill(sql`lease_expires_at, worker_id, hand_out_count`, held, 'held', LIVE);
  await plan();
  await isBounded('with many held', ['model_turn'], 2 * LIVE + CLAIM_READS_MAX);
  await isBounded('with many held of another kind', ['tool_exec'], CLAIM_READS_MAX);
});

/** What a cycle of one item reads: the item a few times a call, what names it, and what the planner probes. */
const CYCLE_READS_MAX = 60;

t.test('a cycle reads neither what is finished nor what is held, whatever the statistics say', async (t) => {
  const plain = await testDatabase(t, 'postgres', { poolConnectionsMax: 1 });
  const { workItems } = plain.names;
  const { id: environmentId } = await createEnvironment(plain, { name: 'old', type: 'self_hosted' });
  const by = { ...DEFAULT_SETTINGS, minQueuedAgeMs: 0, isDeep: false };
  let session = 0;
  const cycle = async (database: Database) => {
    const queue = createQueue({ database });
    await queue.enqueue({ environmentId, sessionId: `cycle ${session++}` });
    const taker = { workerId: null, reclaimOlderThanMs: null };
    const { handOuts } = await poll(database, environmentId, [taker, taker], by);
    const id = handOuts[0]?.item.id ?? '';
    only(await queue.ack([{ environmentId, id }]));
    only(await queue.heartbeat([{ environmentId, id, expectedLastHeartbeat: 'NO_HEARTBEAT', isRetry: false }]));
    only(await queue.stop([{ environmentId, id, force: true, reason: 'worker' }]));
    await queue.close();
  };
  const isBounded = (when: string) =>
    plain.transaction(async (transaction) => {
      const database = within(plain, transaction);
      const before = await rowsRead(database, 'work_items');
      await cycle(database);
      const read = (await rowsRead(database, 'work_items')) - before;
      t.ok(read <= CYCLE_READS_MAX, `${read} rows ${when}`);
    });
  for (let n = 0; n < CALLS; n++) await cycle(plain);
  const fill = (name: string, state: string) =>
    plain.rows(sql`
      insert into ${workItems} (id, environment_id, session_id, kind, lane, state, stopped_at, lease_expires_at)
      select ${name}::text || n, ${environmentId}, ${name}::text || n, 'tool_exec', 'wire', ${state},
        case ${state}::text when 'stopped' then now() end, case ${state}::text when 'active' then now() + interval '1 hour' end
      from generate_series(1, 3000) n`);
  await fill('finished', 'stopped');
  await isBounded('planned on an empty table');
  await plain.rows(sql`discard plans`);
  await isBounded('without statistics of what has come since');
  await plain.rows(sql`analyze ${workItems}`); // nothing is live
  await plain.rows(sql`discard plans`);
  await isBounded('by statistics of a table where nothing is live');
  await fill('held', 'active');
  await isBounded('beside what is held since');

  await plain.transaction(async (transaction) => {
    const database = within(plain, transaction);
    const queue = createQueue({ database });
    await queue.enqueue({ environmentId, sessionId: 'waiting' });
    const before = await rowsRead(database, 'work_items');
    const taker = { workerId: null, reclaimOlderThanMs: null };
    const { handOuts } = await poll(database, environmentId, [taker], { ...by, isDeep: true });
    t.equal(handOuts[0]?.item.sessionId, 'waiting');
    const read = (await rowsRead(database, 'work_items')) - before;
    t.ok(read <= CYCLE_READS_MAX, `${read} rows by a deep look that found what was asked for`);
    await queue.close();
  });
});
