/** What the contract says of work items (§4, §5), in plain data. Knows nothing of `src`, and nothing of SQL. */
export type State = 'queued' | 'starting' | 'active' | 'stopping' | 'stopped';

/** When an item may first be handed out: at once, from an instant that has come, or from one that is yet to come. */
export type NotBefore = 'none' | 'past' | 'future';

/** What its holder said of an item. */
export type Outcome = 'succeeded' | 'failed';

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
  outcome: Outcome | null;
  /** As text. */
  result: string | null;
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
  /** The hand-out that is the present one, also when its lease has lapsed. */
  heldBy: HandOut | null;
  /** Hand-outs that their holders ended before the item did. */
  readonly handedBack: Map<HandOut, 'released' | 'failed'>;
  /** From now; zero or less: lapsed that long ago; null: no lease. */
  leaseSeconds: number | null;
  ttlSeconds: number | null;
  /** Was active since it was last put to queued. */
  started: boolean;
  /** Was active under its present id, also when it was put back to queued since. */
  wasActive: boolean;
  lastHeartbeat: string | null;
  /** Put back to queued from a lease that lapsed, under its present id. */
  isSwept: boolean;
  /** One of its earlier hand-outs was acknowledged, and lapsed. */
  wasBegun: boolean;
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
  ...{
    wasActive: false,
    isSwept: false,
    wasBegun: false,
    lastHeartbeat: null,
    replaced: null,
    isAged: false,
    attempt: 1,
    handOvers: 0,
    proof: null,
  },
  ...{ outcome: null, result: null, heldBy: null, handedBack: new Map() },
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

export const byAge = (a: AnyItem, b: AnyItem): number => Number(a.seq) - Number(b.seq);
export const byClaimOrder = (a: AnyItem, b: AnyItem): number => b.priority - a.priority || byAge(a, b);

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

/** False, and nothing changed, when the merged result would be too large. */
export function patch(item: AnyItem, changes: Readonly<Record<string, string | null>>): boolean {
  const merged = Object.entries({ ...item.metadata, ...changes }).filter(([, value]) => value !== null);
  if (merged.length > METADATA_PAIRS_MAX) return false;
  item.metadata = Object.fromEntries(merged) as Record<string, string>;
  return true;
}
