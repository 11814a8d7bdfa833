import { setTimeout as sleep } from 'node:timers/promises';
import { sql } from 'kysely';
import t from 'tap';
import { until } from '../support/harness.ts';
import { runLeasehold } from '../support/process.ts';
import { SETTLING, settlingPlace } from '../support/settling.ts';

const ITEMS = 2_000;
const ROUNDS = 10;
/** In these the third runner first stands still for longer than its leases last, and then goes on as if it had them. */
const PAUSED_ROUNDS = [2, 5, 8];
const TTL_SECONDS = 1;
const KILL_MS_MAX = 250;

/** Mulberry32: the same choices for the same seed. */
function randomFrom(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

t.test('two runners and a third that is killed again and again settle each of 2,000 items once', async (t) => {
  const seed = Number(process.env.SEED || Math.floor(Math.random() * 2 ** 32));
  t.comment(`SEED=${seed}`);
  const random = randomFrom(seed);
  const { url, database, queue, environmentId } = await settlingPlace(t);

  const startRunner = async (workerId: string) => {
    const args = [
      '--handlers',
      SETTLING,
      '--ttl-seconds',
      `${TTL_SECONDS}`,
      '--concurrency',
      '8',
      '--worker-id',
      workerId,
    ];
    const runner = runLeasehold(t, ['runner', ...args], { DATABASE_URL: url });
    await until(`${workerId} to claim`, () => runner.output().includes('claiming work'));
    return runner;
  };
  const steady = await Promise.all(['steady-0', 'steady-1'].map(startRunner));

  for (let round = 0; round < ROUNDS; round++) {
    const victim = await startRunner(`victim-${round}`);
    const requests = Array.from({ length: ITEMS / ROUNDS }, (_, n) => ({
      environmentId,
      sessionId: `${(round * ITEMS) / ROUNDS + n}`,
      kind: n % 2 === 0 ? ('model_turn' as const) : ('web_exec' as const),
    }));
    await queue.enqueueAll(requests);
    await sleep(random() * KILL_MS_MAX);
    if (PAUSED_ROUNDS.includes(round)) {
      victim.child.kill('SIGSTOP');
      await sleep(TTL_SECONDS * 1_000 + 500 + random() * 1_000);
      victim.child.kill('SIGCONT');
      await sleep(random() * KILL_MS_MAX);
    }
    victim.child.kill('SIGKILL');
    await victim.ended();
  }

  const { workItems } = database.names;
  const count = async (where: string) => {
    const [row] = await database.rows(
      sql<{ n: number }>`select count(*)::integer as n from ${workItems} where ${sql.raw(where)}`,
    );
    return row?.n;
  };
  await until('all items to be stopped', async () => (await count(`state = 'stopped'`)) === ITEMS);
  t.equal(await count(`stop_reason = 'worker' and attempt = 1`), ITEMS, 'all are done, no attempt was spent');
  t.same(
    await database.rows(
      sql`select session_id, array_agg(worker_id) as by from public.settled group by 1 having count(*) <> 1`,
    ),
    [],
    'no item was settled twice',
  );
  t.same(await database.rows(sql`select count(distinct session_id)::integer as n from public.settled`), [{ n: ITEMS }]);
  const handedOver = (await count('hand_over_count > 0')) ?? 0;
  t.ok(handedOver > 0, 'some were taken over from the dead');
  t.comment(`${handedOver} items were handed over; settled by the victims:`);
  const byVictims = await database.rows(
    sql<{ n: number }>`select count(*)::integer as n from public.settled where worker_id like 'victim-%'`,
  );
  t.ok((byVictims[0]?.n ?? 0) > 0, 'the third runner did work before it was killed');
  t.comment(JSON.stringify(byVictims));

  for (const { child } of steady) child.kill('SIGTERM');
  for (const runner of steady) t.strictSame(await runner.ended(), { code: 0, signal: null });
});
