import { sql } from 'kysely';
import { rfc3339 } from '../../../src/db/sql.ts';
import { itemsOf } from '../naming.ts';
import type { Of } from '../operations.ts';
import type { Step } from '../perform.ts';
import type { ModelItem, World } from '../world.ts';

const step = (item: ModelItem, line: string): Step => ({ line, changed: new Set([item]) });

const find = (world: World, { slot, before }: Pick<Of<'lapse'>, 'slot' | 'before'>) =>
  itemsOf(world, slot).at(before ? -2 : -1);

export async function lapse(world: World, operation: Of<'lapse'>): Promise<Step | undefined> {
  const item = find(world, operation);
  if (item === undefined || item.leaseSeconds === null) return undefined;
  item.leaseSeconds = -operation.secondsAgo;
  await world.moveLease(item, operation.secondsAgo);
  return step(item, `the lease of ${item.name}, ${item.state}, lapsed ${operation.secondsAgo} s ago`);
}

/** The item's not-before comes or its next attempt, and that of what waits to follow it. */
export async function comeDue(world: World, operation: Of<'come due'>): Promise<Step | undefined> {
  const item = find(world, operation);
  const isAwaited =
    item?.notBefore === 'future' || item?.nextAttempt === 'future' || item?.followUp?.notBefore === 'future';
  if (item === undefined || !isAwaited) return undefined;
  if (item.notBefore === 'future') item.notBefore = 'past';
  if (item.nextAttempt === 'future') {
    world.met('come due', item.state, item.attempt > 1 ? 'a retry' : 'a start');
    item.nextAttempt = 'past';
  }
  if (item.followUp?.notBefore === 'future') item.followUp = { ...item.followUp, notBefore: 'past' };
  await world.database.rows(sql`
    update ${world.database.names.workItems} w set not_before = case when w.not_before > clock_timestamp() then clock_timestamp() else w.not_before end,
      next_attempt_at = case when w.next_attempt_at > clock_timestamp() then clock_timestamp() else w.next_attempt_at end,
      follow_up = case when w.follow_up ->> 'not_before' > '2999' then w.follow_up || jsonb_build_object('not_before', clock_timestamp())
        else w.follow_up end
    where w.seq = ${item.seq}`);
  return step(item, `${item.name} comes due, and what follows it`);
}

/** Finished for longer than work is kept: the next sweep forgets it. */
export async function growOld(world: World, operation: Of<'grow old'>): Promise<Step | undefined> {
  const item = find(world, operation);
  if (item?.state !== 'stopped' || item.isOld) return undefined;
  item.isOld = true;
  await world.database.rows(sql`
    update ${world.database.names.workItems} set stopped_at = clock_timestamp() - interval '400 days' where seq = ${item.seq}`);
  return step(item, `${item.name} was stopped long ago`);
}

/** Created long ago: it has waited for polls for as long as its environment asks for. */
export async function age(world: World, operation: Of<'age'>): Promise<Step | undefined> {
  const item = find(world, operation);
  if (item === undefined || item.isAged) return undefined;
  const [row] = await world.database.rows(sql<{ createdAt: string }>`
    update ${world.database.names.workItems} w set created_at = w.created_at - interval '1 hour' where w.seq = ${item.seq}
    returning ${rfc3339(sql`w.created_at`)} as "createdAt"`);
  if (row === undefined) throw new Error(`${item.name} is not in the table`);
  Object.assign(item, { isAged: true, createdAt: row.createdAt });
  return step(item, `${item.name} has waited for an hour`);
}

export async function setClockBack(world: World, operation: Of<'set the clock back'>): Promise<Step | undefined> {
  const item = itemsOf(world, operation.slot).at(-1);
  if (item?.state !== 'active' || item.lastHeartbeat === null) return undefined;
  const ahead = item.lastHeartbeat.replace(/^\d{4}/, '2999');
  await world.database.rows(sql`
    update ${world.database.names.workItems} set last_heartbeat = ${ahead}::timestamptz where seq = ${item.seq}`);
  item.lastHeartbeat = ahead;
  item.tokens.push(ahead);
  return step(item, `the clock is set back, the last beat of ${item.name} lies ahead`);
}
