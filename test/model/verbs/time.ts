import { sql } from 'kysely';
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

/** The item's not-before comes, and that of what waits to follow it. */
export async function comeDue(world: World, operation: Of<'come due'>): Promise<Step | undefined> {
  const item = find(world, operation);
  const isAwaited = item?.notBefore === 'future' || item?.followUp?.notBefore === 'future';
  if (item === undefined || !isAwaited) return undefined;
  if (item.notBefore === 'future') item.notBefore = 'past';
  if (item.followUp?.notBefore === 'future') item.followUp = { ...item.followUp, notBefore: 'past' };
  await world.database.rows(sql`
    update ${world.database.names.workItems} w set not_before = case when w.not_before > clock_timestamp() then clock_timestamp() else w.not_before end,
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
