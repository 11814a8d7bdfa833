import assert from 'node:assert/strict';
import { until } from '../../support/harness.ts';
import { ask } from './ask.ts';
import { poll } from './clients.ts';
import { leasesWereMoved } from './faults.ts';
import { takeLocks } from './locking.ts';
import type { World } from './world.ts';

const POLLS_MAX = 200;
/** The background may take a row between a look at what is locked and the poll after it. */
const NULLS_MAX = 5;
const PUT_BACK_MS_MAX = 5_000;

/**
 * The end of a history: what was taken for clients that left is put back, without a lease having to lapse; then all leases lapse, what waits for its time is due, and whatever
 * is on offer is taken and stopped, until nothing is.
 */
export async function drain(world: World): Promise<void> {
  await world.quiesce();
  await world.log.read(world.clock);
  await untilPutBack(world);
  await world.log.read(world.clock);
  const { schema } = world.place;
  await world.pool.query(`
    update ${schema}.work_items set
      lease_expires_at = case when lease_expires_at is not null then clock_timestamp() - interval '3 seconds' end,
      not_before = case when not_before > clock_timestamp() then clock_timestamp() else not_before end
    where state <> 'stopped' and (lease_expires_at is not null or not_before > clock_timestamp())`);
  leasesWereMoved(world.replicas, world.place);
  await world.log.read(world.clock);
  for (let [n, nulls] = [0, 0]; ; n++) {
    assert(n < POLLS_MAX, 'what is on offer comes to an end');
    const to = n % 2 === 0 ? 0 : 1;
    const holding = await poll(world, to);
    if (holding !== undefined) {
      await ask(world, world.replicas[to], { verb: 'stop', id: holding.id, force: true, reason: 'worker' });
      continue;
    }
    const { rows } = await world.pool.query(
      `select seq, session_id, state, lease_expires_at from ${schema}.work_items where state <> 'stopped'`,
    );
    if (rows.length === 0) break;
    await until('nobody has a row of what is left', () => isLetGo(world));
    if (++nulls === NULLS_MAX) assert.deepEqual(rows, [], 'what was enqueued is stopped or was offered');
  }
  await takeLocks(world);
  await world.log.read(world.clock);
}

/** What somebody has locked a poll passes over, for as long as a busy machine lets that last: its null says nothing of it. */
async function isLetGo({ pool, place }: World): Promise<boolean> {
  const left = `from ${place.schema}.work_items where state <> 'stopped'`;
  const { rows } = await pool.query(`
    with free as (select ${left} for update skip locked)
    select (select count(*) from free) = (select count(*) ${left}) as "isLetGo"`);
  return rows[0].isLetGo;
}

async function untilPutBack({ replicas, pool, place, broken }: World): Promise<void> {
  // Where the database failed, putting back may have failed, too: that item lapses.
  const left = replicas.flatMap(({ name, undelivered }) => (broken.has(name) ? [] : [...undelivered]));
  if (left.length === 0) return;
  await until(
    `what was taken for ${left} to be put back`,
    async () => {
      const { rowCount } = await pool.query(
        `select from ${place.schema}.work_items
        where worker_id = any($1) and state = 'queued' and lease_expires_at > clock_timestamp()`,
        [left],
      );
      return rowCount === 0;
    },
    PUT_BACK_MS_MAX,
  );
}
