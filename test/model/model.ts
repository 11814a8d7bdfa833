/** What the contract says of one work item (§4, §5), in plain data. Knows nothing of `src`, and nothing of SQL. */
export type State = 'queued' | 'starting' | 'active' | 'stopping' | 'stopped';

export type Item<HandOut> = {
  readonly environmentId: string;
  readonly sessionId: string;
  readonly kind: string;
  readonly priority: number;
  /** The internal key: it stays when the id rotates. */
  readonly seq: string;
  readonly createdAt: string;
  /** False until its not-before has come. */
  due: boolean;
  state: State;
  id: string;
  /** Ids it had before: every call on them is not_found. */
  readonly oldIds: string[];
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
};

export const NO_HEARTBEAT = 'NO_HEARTBEAT';
export const STARTUP_LEASE_SECONDS = 200;
export const LEASE_TTL_SECONDS = 120;
export const LEASE_TTL_SECONDS_MAX = 300;
export const SWEEP_PATIENCE_SECONDS = 2;
export const METADATA_PAIRS_MAX = 16;

type AnyItem = Item<unknown>;

const hasLapsed = (item: AnyItem, secondsAgo = 0): boolean =>
  item.leaseSeconds !== null && item.leaseSeconds <= -secondsAgo;

/** Only tool_exec is visible on the wire. */
export const isVisible = (item: AnyItem): boolean => item.kind === 'tool_exec';

/** Covers its session: enqueue answers it instead of making another. */
export const isLive = (item: AnyItem): boolean => ['queued', 'starting', 'active'].includes(item.state);

/** What a poll hands out. */
export function isClaimable(item: AnyItem): boolean {
  if (!isVisible(item)) return false;
  if (item.state === 'queued') return item.due && (item.leaseSeconds === null || hasLapsed(item));
  return (item.state === 'starting' || item.state === 'active') && hasLapsed(item);
}

export function handOut<HandOut>(item: Item<HandOut>, id: string, by: HandOut, reservationSeconds: number): void {
  if (item.known) item.oldIds.push(item.id);
  requeue(item);
  Object.assign(item, { id, known: true, wasActive: false, reservedBy: by, leaseSeconds: reservationSeconds });
}

export function requeue(item: AnyItem): void {
  const reset = { leaseSeconds: null, ttlSeconds: null, started: false, lastHeartbeat: null, replaced: null };
  Object.assign(item, { state: 'queued', reservedBy: null, ...reset });
}

export const isAbandoned = (item: AnyItem): boolean =>
  item.state === 'stopping' && (item.leaseSeconds === null || hasLapsed(item));

/** The sweep leaves what lapsed a moment ago to its holder and to polls. */
export const isSweepable = (item: AnyItem): boolean =>
  (item.state === 'starting' || item.state === 'active') && hasLapsed(item, SWEEP_PATIENCE_SECONDS);

export function end(item: AnyItem): void {
  Object.assign(item, { state: 'stopped', leaseSeconds: null, reservedBy: null });
}

export function putBack<HandOut>(item: Item<HandOut>, by: HandOut, unseen: boolean): boolean {
  if (item.reservedBy !== by) return false;
  Object.assign(item, { reservedBy: null, leaseSeconds: null, known: !unseen });
  return true;
}

/** True when it changed something. */
export function ack(item: AnyItem): boolean {
  if (item.state !== 'queued') return false;
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

export function stop(item: AnyItem, force: boolean): 'stopping' | 'stopped' | 'conflict' {
  if (item.state === 'stopped' || (item.state === 'stopping' && !force)) return 'conflict';
  if (item.state === 'active' && !force) item.state = 'stopping';
  else end(item);
  return item.state === 'stopping' ? 'stopping' : 'stopped';
}

/** False, and nothing changed, when the merged result would be too large. */
export function patch(item: AnyItem, changes: Readonly<Record<string, string | null>>): boolean {
  const merged = Object.entries({ ...item.metadata, ...changes }).filter(([, value]) => value !== null);
  if (merged.length > METADATA_PAIRS_MAX) return false;
  item.metadata = Object.fromEntries(merged) as Record<string, string>;
  return true;
}
