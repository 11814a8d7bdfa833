import { until } from '../../support/harness.ts';
import { ask } from './ask.ts';
import { bodyOf } from './calls.ts';
import { enqueue } from './clients.ts';
import type { Of, Request, Session } from './plan.ts';
import type { World } from './world.ts';

/** Tests move rows, not clocks. */
export async function lapse({ pool, place, replicas }: World, { session, secondsAgo }: Of<'lapse'>): Promise<void> {
  await pool.query(
    `update ${place.schema}.work_items set
      lease_expires_at = case when lease_expires_at is not null then clock_timestamp() - $2 * interval '1 second' end,
      not_before = case when not_before > clock_timestamp() then clock_timestamp() else not_before end
    where session_id = $1 and state <> 'stopped' and (lease_expires_at is not null or not_before > clock_timestamp())`,
    [session, secondsAgo],
  );
  leasesWereMoved(replicas, place);
}

/** No lease that a verb gives runs out so soon: whoever moves one says so. */
export function leasesWereMoved(replicas: World['replicas'], { environmentId }: World['place']): void {
  for (const { queue } of replicas) queue.wake(environmentId);
}

export async function hold(world: World, { sessions, ticks }: Of<'hold'>): Promise<void> {
  const client = await world.pool.connect();
  const held = { sessions, begun: world.clock.tick(), ended: Number.POSITIVE_INFINITY };
  world.holds.push(held);
  try {
    await client.query('begin');
    const { rowCount } = await client.query(
      `select from ${world.place.schema}.work_items where session_id = any($1) order by seq for update`,
      [sessions],
    );
    if (rowCount) world.meet('rows held by another transaction');
    await world.clock.after(ticks);
    await client.query('rollback');
  } finally {
    client.release();
  }
  held.ended = world.clock.tick();
}

export async function slow(world: World, { to, ticks }: Of<'slow'>): Promise<void> {
  world.meet('answers of the database late');
  await world.replicas[to].delayAnswers(world.clock.after(ticks));
}

export async function crash(world: World, step: Of<'crash'>): Promise<void> {
  await world.clock.after(step.ticks);
  await world.crash(step.to);
}

/** The statements that run are committed by then. */
const MUTE_TICKS = 25;

export async function kill(world: World, step: Of<'kill'>): Promise<void> {
  await world.clock.after(step.ticks);
  const { name, loseAnswers } = world.replicas[step.to];
  world.broken.add(name);
  if (step.mute) {
    world.meet('answers of the database lost');
    return loseAnswers(world.clock.after(MUTE_TICKS));
  }
  world.meet('connections to the database ended by it');
  // But for the one that listens: coming back it would have everybody looked for again.
  await world.pool.query(
    `select pg_terminate_backend(pid) from pg_stat_activity where application_name = $1 and query !~* '^(listen |select 1$)'`,
    [name],
  );
}

const OTHER: Readonly<Record<Session, Session>> = { s1: 's2', s2: 's3', s3: 's1' };

/**
 * A stop whose follow-up is enqueued waits for the environment's row while it has the item's; the transaction that has the first then
 * asks for the second. The database ends one of them: a batch that was undone is to be tried again, and nobody hears of it.
 */
export async function cross(world: World, { session, to }: Of<'cross'>): Promise<void> {
  const { schema, environmentId } = world.place;
  const request = { requestId: undefined, followUp: true, maxHandOuts: undefined, maxAttempts: undefined };
  const put = async (...requests: Request[]) =>
    bodyOf(await enqueue(world, { do: 'enqueue', to, requests, fault: { what: 'none' } }))?.id;
  await put({ ...request, session });
  const ids = [await put({ ...request, session }), await put({ ...request, session: OTHER[session] })];
  const client = await world.pool.connect();
  const held = { sessions: [session], begun: world.clock.tick(), ended: Number.POSITIVE_INFINITY };
  world.holds.push(held);
  try {
    await client.query('begin');
    const { rows } = await client.query(
      `select pg_backend_pid() as pid from ${schema}.environments where id = $1 for update`,
      [environmentId],
    );
    let isOver = false;
    const stops = Promise.all(
      ids.map((id) => ask(world, world.replicas[to], { verb: 'stop', id: id ?? '', force: true, reason: 'worker' })),
    ).finally(() => {
      isOver = true;
    });
    await until('the stop to wait', async () => {
      const { rowCount } = await world.pool.query(
        'select from pg_stat_activity where $1 = any(pg_blocking_pids(pid)) and application_name = $2',
        [rows[0]?.pid, world.replicas[to].name],
      );
      return isOver || rowCount !== 0;
    });
    await client.query(`select from ${schema}.work_items where id = $1 for update`, [ids[0]]).then(
      () => world.meet('a batch that lost to a deadlock'),
      () => world.meet('a deadlock that another lost'),
    );
    await client.query('rollback');
    await stops;
  } finally {
    client.release();
  }
  held.ended = world.clock.tick();
}
