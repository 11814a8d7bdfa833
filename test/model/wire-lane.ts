import {
  byAge,
  byClaimOrder,
  type Environment,
  end,
  hasLapsed,
  type Item,
  isVisible,
  type StopReason,
} from './model.ts';

/** What the contract says of items that are polled (§4, §5), in plain data. */
type AnyItem = Item<unknown>;

export const NO_HEARTBEAT = 'NO_HEARTBEAT';
export const STARTUP_LEASE_SECONDS = 200;
export const LEASE_TTL_SECONDS = 120;
export const LEASE_TTL_SECONDS_MAX = 300;
export const SWEEP_PATIENCE_SECONDS = 2;

/** Free to be handed out, or to be set aside in place of that. */
export function isFree(item: AnyItem): boolean {
  if (!isVisible(item)) return false;
  if (item.state === 'queued') return item.notBefore !== 'future' && (item.leaseSeconds === null || hasLapsed(item));
  return (item.state === 'starting' || item.state === 'active') && hasLapsed(item);
}

/** Was handed out as often as it may be. */
export const isSpent = (item: AnyItem, environment: Environment): boolean =>
  item.handOutCount >= (item.maxHandOuts ?? environment.maxHandOuts ?? Number.POSITIVE_INFINITY);

/**
 * What one look for so many takers comes across: what is queued in claim order, then what has lapsed, oldest first. `agedOnly`:
 * the key's workers are offered only what has waited for long.
 */
export function look<Some extends AnyItem>(
  items: readonly Some[],
  environment: Environment,
  takers: number,
  agedOnly = false,
): Some[] {
  if (environment.isPaused) return [];
  const free = items.filter((item) => isFree(item) && (item.isAged || !agedOnly));
  const queued = free.filter((item) => item.state === 'queued').sort(byClaimOrder);
  const lapsed = free.filter((item) => item.state !== 'queued').sort(byAge);
  return [...queued, ...lapsed].slice(0, takers);
}

export function handOut<HandOut>(
  item: Item<HandOut>,
  id: string,
  by: HandOut,
  reservationSeconds: number,
  environment: Environment,
): void {
  if (item.known) item.oldIds.push(item.id);
  supersede(item);
  requeue(item);
  item.handOutCount += 1;
  const isLastHandOut = isSpent(item, environment);
  const reserved = { reservedBy: by, heldBy: by, leaseSeconds: reservationSeconds, isLastHandOut };
  Object.assign(item, { id, known: true, wasActive: false, ...reserved });
}

/** Whoever had it let its lease lapse; a reservation that nobody acknowledged is not begun. */
export function supersede(item: AnyItem): void {
  if (item.isSwept || item.state !== 'queued') item.wasBegun = true;
  item.isSwept = false;
}

export function sweep(item: AnyItem): void {
  requeue(item);
  item.isSwept = true;
}

export function requeue(item: AnyItem): void {
  const reset = { leaseSeconds: null, ttlSeconds: null, started: false, lastHeartbeat: null, replaced: null };
  Object.assign(item, { state: 'queued', reservedBy: null, proof: null, ...reset });
}

export const isAbandoned = (item: AnyItem): boolean =>
  item.state === 'stopping' && (item.leaseSeconds === null || hasLapsed(item));

/** The sweep leaves what lapsed a moment ago to its holder and to polls. */
export const isSweepable = (item: AnyItem): boolean =>
  isVisible(item) && (item.state === 'starting' || item.state === 'active') && hasLapsed(item, SWEEP_PATIENCE_SECONDS);

/** The sweep sets aside: what it would put back to queued, and what nobody acked the last time it could be handed out. */
export function isSweptAside(item: AnyItem, environment: Environment): boolean {
  if (!isVisible(item) || !isSpent(item, environment)) return false;
  if (item.state !== 'queued') return isSweepable(item);
  return item.isLastHandOut && (item.leaseSeconds === null || hasLapsed(item, SWEEP_PATIENCE_SECONDS));
}

/** What nobody saw did not happen: it is not counted, and the id stays. */
export function putBack<HandOut>(item: Item<HandOut>, by: HandOut, unseen: boolean): boolean {
  if (item.reservedBy !== by) return false;
  Object.assign(item, { reservedBy: null, leaseSeconds: null, known: !unseen });
  if (unseen) {
    item.handOutCount -= 1;
    Object.assign(item, { isLastHandOut: false, heldBy: null });
  }
  return true;
}

/** True when it changed something. Who acks what was never handed out has it all the same. */
export function ack(item: AnyItem): boolean {
  if (item.state !== 'queued') return false;
  if (!item.known) item.handOutCount += 1; // somebody had it after all, or knew the id of what was enqueued
  Object.assign(item, { state: 'starting', known: true, reservedBy: null, leaseSeconds: STARTUP_LEASE_SECONDS });
  return true;
}

export type Beat = 'beat' | 'replay' | 'over' | 'refused';

export function judgeHeartbeat(item: AnyItem, expected: string, isRetry: boolean): Beat {
  switch (item.state) {
    case 'queued':
      return 'refused';
    case 'starting':
      return expected === NO_HEARTBEAT ? 'beat' : 'refused';
    case 'active':
      if (expected === item.lastHeartbeat) return 'beat';
      return isRetry && expected === item.replaced ? 'replay' : 'refused';
    case 'stopping':
      return 'over';
    case 'stopped':
      return item.wasActive ? 'over' : 'refused';
  }
}

export function beat(item: AnyItem, token: string, ttlSeconds: number): void {
  item.replaced = item.lastHeartbeat ?? NO_HEARTBEAT;
  item.lastHeartbeat = token;
  extend(item, ttlSeconds);
}

export function extend(item: AnyItem, ttlSeconds: number): void {
  Object.assign(item, { state: 'active', started: true, wasActive: true, leaseSeconds: ttlSeconds, ttlSeconds });
}

/** What asked first stays the reason. */
export function stop(item: AnyItem, force: boolean, asked: StopReason): 'stopping' | 'stopped' | 'conflict' {
  if (item.state === 'stopped' || (item.state === 'stopping' && !force)) return 'conflict';
  const reason = item.stopReason ?? asked;
  if (item.state === 'active' && !force) Object.assign(item, { state: 'stopping', stopReason: reason });
  else end(item, reason);
  return item.state === 'stopping' ? 'stopping' : 'stopped';
}
