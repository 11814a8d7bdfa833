import { sql } from 'kysely';
import t from 'tap';
import { AGO, LAPSED, newLane } from '../support/claims.ts';
import { testClient } from '../support/harness.ts';

/** More than a claim reads of each sort at once, twice over. */
const CROWD = 40;
const lane = await newLane(t);
const { database, queue, cloud, selfHosted, enqueue, claim, row, set } = lane;
const { workItems, environments } = database.names;
t.beforeEach(() => lane.empty());

/** Items that all stand before the one to be claimed. */
async function crowd(
  columns = sql`priority = 9`,
  environmentId = cloud,
  kind: 'model_turn' | 'tool_exec' = 'model_turn',
) {
  const requests = Array.from({ length: CROWD }, (_, n) => ({ environmentId, sessionId: `crowd ${n}`, kind }));
  const enqueued = await queue.enqueueAll(requests);
  await database.rows(sql`update ${workItems} set ${columns} where session_id like 'crowd %'`);
  return enqueued.map(({ item }) => item.id);
}
const HELD = sql`state = 'active', worker_id = 'x', hand_out_count = 1, handed_out_at = ${AGO}`;
const CROWDS = {
  'queued items': sql`attempt = 1`,
  'due retries': sql`next_attempt_at = ${AGO}, attempt = 2`,
  'lapsed items': sql`${HELD}, ${LAPSED}`,
};
const all = sql`select from ${workItems} where session_id like 'crowd %' for no key update`;
const lockSql = all.compile(database.kysely).sql;

for (const [name, columns] of Object.entries(CROWDS)) {
  for (const [behind, target] of Object.entries(CROWDS)) {
    t.test(
      `locked ${name} hide no ${behind.replace(/s$/, '')} behind them, and are claimed once they are free`,
      async (t) => {
        const id = await enqueue();
        await set(id, target);
        const crowded = await crowd(sql`priority = 9, ${columns}`);
        const client = await testClient(t);
        await client.query('begin');
        await client.query(lockSql);
        t.match(await claim(), { id });
        t.equal(await claim(), null, 'nobody waits for the locked ones');
        await client.query('rollback');
        t.ok(crowded.includes((await claim())?.id ?? ''));
      },
    );
  }
}

t.test('live, spent, cancelled and not yet due items hide nothing behind them', async (t) => {
  for (const columns of [
    sql`priority = 9, ${HELD}, lease_expires_at = clock_timestamp() + interval '1 hour'`,
    sql`priority = 9, ${HELD}, ${LAPSED}, max_hand_outs = 1`,
    sql`priority = 9, ${HELD}, ${LAPSED}, cancel_requested_at = ${AGO}`,
    sql`priority = 9, next_attempt_at = clock_timestamp() + interval '1 hour'`,
    sql`priority = 9, not_before = clock_timestamp() + interval '1 hour'`,
    sql`priority = 9, state = 'stopped'`,
  ]) {
    await lane.empty();
    const id = await enqueue();
    await crowd(columns);
    t.match(await queue.nextEligible('model_turn'), { id });
    t.match(await claim(), { id });
    await set(id, LAPSED);
    t.match(await claim(), { id, isReclaimed: true });
    t.equal(await claim(), null);
  }
});

t.test('a crowd of polled items that may not fall back hides none that may', async (t) => {
  const ages = sql`created_at = clock_timestamp() - interval '1 hour', priority = 9`;
  for (const columns of [
    sql`${ages}, lease_expires_at = clock_timestamp() + interval '1 hour', hand_out_count = 1, handed_out_at = ${AGO}`,
    sql`${ages}, not_before = clock_timestamp() + interval '1 hour'`,
    sql`${ages}, max_hand_outs = 1, hand_out_count = 1`,
    sql`priority = 9`,
  ]) {
    await lane.empty();
    await database.rows(sql`update ${environments} set fallback_after_ms = 1000 where id = ${selfHosted}`);
    const id = await enqueue({ environmentId: selfHosted, kind: 'tool_exec' });
    await set(id, sql`created_at = ${AGO}`);
    await crowd(columns, selfHosted, 'tool_exec');
    t.match(await queue.nextEligible('tool_exec'), { id });
    t.match(await claim('tool_exec'), { id });
    t.equal(await claim('tool_exec'), null);
  }
});

t.test('a crowd of locked polled items hides none that may fall back', async (t) => {
  await database.rows(sql`update ${environments} set fallback_after_ms = 1000 where id = ${selfHosted}`);
  const id = await enqueue({ environmentId: selfHosted, kind: 'tool_exec' });
  await set(id, sql`created_at = ${AGO}`);
  await crowd(sql`created_at = clock_timestamp() - interval '1 hour'`, selfHosted, 'tool_exec');
  const client = await testClient(t);
  await client.query('begin');
  await client.query(lockSql);
  t.match(await claim('tool_exec'), { id });
  t.equal(await claim('tool_exec'), null);
  await client.query('rollback');
});

t.test('many claim at once: each item once, and none is told that there is nothing while there is', async (t) => {
  const ids = await crowd();
  const claimed = await Promise.all(ids.map((_, n) => claim('model_turn', `worker ${n}`)));
  t.strictSame(claimed.map((item) => item?.id).sort(), ids.toSorted());
  for (const item of claimed)
    t.match(await row(item?.id ?? ''), { worker_id: item?.lease.workerId, hand_out_count: 1 });
  t.equal(await claim(), null);
});
