/** What the contract says of work items (§4, §5), in plain data. Knows nothing of `src`, and nothing of SQL. */
export type State = 'queued' | 'starting' | 'active' | 'stopping' | 'stopped';

/** When an item may first be handed out: at once, from an instant that has come, or from one that is yet to come. */
export type NotBefore = 'none' | 'past' | 'future';

export type StopReason = 'worker' | 'operator' | 'abandoned' | 'exhausted' | 'failed' | 'cancelled';

/** Polled, or claimed by a process. */
export type Lane = 'wire' | 'process';

/** The proof of who holds an item of the process lane. */
export type Proof = {
  readonly seq: string;
  readonly workerId: string;
  readonly handOut: number;
  readonly expiresAt: string;
};

/** What its enqueuer says of a piece of work. */
export type Work = {
  readonly priority: number;
  readonly metadata: Readonly<Record<string, string>>;
  /** Its own cap; null: the environment's holds. */
  readonly maxHandOuts: number | null;
  /** In the process lane; null: the process's. */
  readonly maxAttempts: number | null;
  readonly notBefore: NotBefore;
};

/** Work that waits for an item to leave its slot, under an id that was minted before. */
export type FollowUp = Work & { readonly id: string };

export type Environment = {
  isPaused: boolean;
  /** The cap of items without one of their own; null: none. */
  maxHandOuts: number | null;
  /** What has waited for polls for long may be claimed. */
  fallsBack: boolean;
};

export type Item<HandOut> = {
  readonly environmentId: string;
  readonly sessionId: string;
  readonly kind: string;
  readonly priority: number;
  readonly maxHandOuts: number | null;
  readonly maxAttempts: number | null;
  /** The id of the set-aside item that this one puts back to work. */
  readonly requeuedFrom: string | null;
  /** The internal key: it stays when the id rotates. */
  readonly seq: string;
  createdAt: string;
  /** It was created long ago: first refusal is over. */
  isAged: boolean;
  /** Changes once at most, from wire to process. */
  lane: Lane;
  notBefore: NotBefore;
  state: State;
  stopReason: StopReason | null;
  /** Stopped for longer than finished work is kept. */
  isOld: boolean;
  id: string;
  /** Ids it had before: every call on them is not_found. */
  readonly oldIds: string[];
  handOutCount: number;
  /** The cap was reached by its last hand-out, when that was made. */
  isLastHandOut: boolean;
  /** Stays with the item that it follows. */
  followUp: FollowUp | null;
  /** Somebody may know the id, so the next hand-out mints another. */
  known: boolean;
  /** The hand-out whose reservation nobody has used up yet. */
  reservedBy: HandOut | null;
  /** From now; zero or less: lapsed that long ago; null: no lease. */
  leaseSeconds: number | null;
  ttlSeconds: number | null;
  /** Was active since it was last put to queued. */
  started: boolean;
  /** Was active under its present id, also when it was put back to queued since. */
  wasActive: boolean;
  lastHeartbeat: string | null;
  /** What the stored beat replaced: the value that a marked retry may repeat. */
  replaced: string | null;
  metadata: Record<string, string>;
  /** From 1: failures alone count. */
  attempt: number;
  /** The instant of the next attempt, once it is known when. */
  nextAttempt: NotBefore;
  /** How often it was taken over from a dead claimant. */
  handOvers: number;
  isCancelRequested: boolean;
  lastError: string | null;
  /** Of the process that holds it. */
  proof: Proof | null;
};

export const NO_HEARTBEAT = 'NO_HEARTBEAT';
export const STARTUP_LEASE_SECONDS = 200;
export const LEASE_TTL_SECONDS = 120;
export const LEASE_TTL_SECONDS_MAX = 300;
export const SWEEP_PATIENCE_SECONDS = 2;
export const METADATA_PAIRS_MAX = 16;

type AnyItem = Item<unknown>;

export const newItem = (
  place: { readonly environmentId: string; readonly sessionId: string; readonly kind: string; readonly lane: Lane },
  row: { readonly id: string; readonly seq: string; readonly createdAt: string },
  { priority, metadata, maxHandOuts, maxAttempts, notBefore }: Work,
  requeuedFrom: string | null = null,
): AnyItem => ({
  ...{ ...place, ...row, priority, metadata: { ...metadata }, maxHandOuts, maxAttempts, notBefore, requeuedFrom },
  ...{ state: 'queued', stopReason: null, isOld: false, oldIds: [], handOutCount: 0, isLastHandOut: false },
  ...{ followUp: null, known: false, reservedBy: null, leaseSeconds: null, ttlSeconds: null, started: false },
  ...{ wasActive: false, lastHeartbeat: null, replaced: null, isAged: false, attempt: 1, handOvers: 0, proof: null },
  ...{ isCancelRequested: false, lastError: null, nextAttempt: place.lane === 'process' ? notBefore : 'none' },
});

export const hasLapsed = (item: AnyItem, secondsAgo = 0): boolean =>
  item.leaseSeconds !== null && item.leaseSeconds <= -secondsAgo;

/** What is in the process lane is not there for the wire. */
export const isVisible = (item: AnyItem): boolean => item.lane === 'wire';

/** Covers its session: enqueue answers it instead of making another. */
export const isLive = (item: AnyItem): boolean => ['queued', 'starting', 'active'].includes(item.state);

export type Verdict = 'known' | 'taken' | 'kind refused' | 'covered' | 'new';

/** `known`: the item for which the request's id is remembered. `covering`: the live one of its session and kind. */
export function judgeEnqueue(
  { sessionId, kind, isRefused }: { readonly sessionId: string; readonly kind: string; readonly isRefused: boolean },
  known: AnyItem | undefined,
  covering: AnyItem | undefined,
): Verdict {
  if (known !== undefined) return known.sessionId === sessionId && known.kind === kind ? 'known' : 'taken';
  if (isRefused) return 'kind refused';
  return covering === undefined ? 'new' : 'covered';
}

/** The first is kept. True when it was this one. */
export function arm(item: AnyItem, followUp: FollowUp): boolean {
  if (item.followUp !== null) return false;
  item.followUp = followUp;
  return true;
}

/** It has just left its slot, and somebody asked for more. */
export const isFollowed = (before: State, item: AnyItem): boolean =>
  isLive({ ...item, state: before }) && !isLive(item) && item.followUp !== null;

/** Free to be handed out, or to be set aside in place of that. */
export function isFree(item: AnyItem): boolean {
  if (!isVisible(item)) return false;
  if (item.state === 'queued') return item.notBefore !== 'future' && (item.leaseSeconds === null || hasLapsed(item));
  return (item.state === 'starting' || item.state === 'active') && hasLapsed(item);
}

/** Was handed out as often as it may be. */
export const isSpent = (item: AnyItem, environment: Environment): boolean =>
  item.handOutCount >= (item.maxHandOuts ?? environment.maxHandOuts ?? Number.POSITIVE_INFINITY);

export const byAge = (a: AnyItem, b: AnyItem): number => Number(a.seq) - Number(b.seq);
export const byClaimOrder = (a: AnyItem, b: AnyItem): number => b.priority - a.priority || byAge(a, b);

/** What one look for so many takers comes across: what is queued in claim order, then what has lapsed, oldest first. */
export function look<Some extends AnyItem>(items: readonly Some[], environment: Environment, takers: number): Some[] {
  if (environment.isPaused) return [];
  const free = items.filter(isFree);
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
  requeue(item);
  item.handOutCount += 1;
  const isLastHandOut = isSpent(item, environment);
  const reserved = { reservedBy: by, leaseSeconds: reservationSeconds, isLastHandOut };
  Object.assign(item, { id, known: true, wasActive: false, ...reserved });
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

export function end(item: AnyItem, reason: StopReason): void {
  Object.assign(item, { state: 'stopped', stopReason: reason, leaseSeconds: null, reservedBy: null, proof: null });
}

/** Whatever it does. Nothing follows. */
export function cancel(item: AnyItem): void {
  end(item, 'cancelled');
  item.followUp = null;
}

/** Why a stopped item is not put back to work, if it is not. */
export function judgeRequeue(
  item: AnyItem,
  others: readonly AnyItem[],
): 'requeued' | 'not set aside' | 'again' | 'slot' {
  if (item.stopReason !== 'exhausted' && item.stopReason !== 'failed') return 'not set aside';
  if (others.some((other) => other.requeuedFrom === item.id)) return 'again';
  const { environmentId, sessionId, kind } = item;
  const isTaken = others.some(
    (other) =>
      isLive(other) && other.environmentId === environmentId && other.sessionId === sessionId && other.kind === kind,
  );
  return isTaken ? 'slot' : 'requeued';
}

/** What nobody saw did not happen: it is not counted, and the id stays. */
export function putBack<HandOut>(item: Item<HandOut>, by: HandOut, unseen: boolean): boolean {
  if (item.reservedBy !== by) return false;
  Object.assign(item, { reservedBy: null, leaseSeconds: null, known: !unseen });
  if (unseen) {
    item.handOutCount -= 1;
    item.isLastHandOut = false;
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

/** False, and nothing changed, when the merged result would be too large. */
export function patch(item: AnyItem, changes: Readonly<Record<string, string | null>>): boolean {
  const merged = Object.entries({ ...item.metadata, ...changes }).filter(([, value]) => value !== null);
  if (merged.length > METADATA_PAIRS_MAX) return false;
  item.metadata = Object.fromEntries(merged) as Record<string, string>;
  return true;
}
