import { byClaimOrder, type Environment, end, hasLapsed, type Item, type Proof } from './model.ts';
import { isFree, isSpent, supersede } from './wire-lane.ts';

/** What the issue of the process lane says of items that are claimed, in plain data. Knows nothing of `src`, and nothing of SQL. */
type AnyItem = Item<unknown>;

export const KINDS = ['model_turn', 'tool_exec', 'web_exec', 'outputs_harvest', 'mcp_exec'] as const;
export type Kind = (typeof KINDS)[number];

/** The settings that the histories run under: within their reach. */
export const MAX_ATTEMPTS = 3;
export const MAX_HAND_OVERS = 2;

/** Queued, and to be claimed now: due, or refused by polls for long enough with nobody's reservation on it. */
export function isEligible(item: AnyItem, environment: Environment): boolean {
  if (item.state !== 'queued') return false;
  if (item.lane === 'process') return item.notBefore !== 'future' && item.nextAttempt !== 'future';
  return isFree(item) && item.isAged && environment.fallsBack && !environment.isPaused && !isSpent(item, environment);
}

/** Takes its place in line, by the sweep: that is told by its row alone. */
export const hasComeDue = (item: AnyItem): boolean => item.state === 'queued' && item.nextAttempt === 'past';

/** Its claimant has died, as far as anybody can tell. */
export const hasExpired = (item: AnyItem): boolean =>
  item.lane === 'process' && item.state === 'active' && hasLapsed(item);

/** Why it ends in place of being taken over. A cap of its own or of its environment counts its workers and its first claimant, too. */
export function doomOf(item: AnyItem, environment: Environment): 'cancelled' | 'exhausted' | null {
  if (!hasExpired(item)) return null;
  if (item.isCancelRequested) return 'cancelled';
  const cap = item.maxHandOuts ?? environment.maxHandOuts;
  const isSpent =
    cap === null
      ? item.handOvers >= MAX_HAND_OVERS
      : item.oldIds.length - item.handedBack.size + 1 + item.handOvers >= cap;
  return isSpent ? 'exhausted' : null;
}

/** All that claims would take, in their order. */
export const claimable = <Some extends AnyItem>(
  items: readonly Some[],
  environmentOf: (id: string) => Environment,
): Some[] =>
  items
    .filter((item) => {
      const environment = environmentOf(item.environmentId);
      return isEligible(item, environment) || (hasExpired(item) && doomOf(item, environment) === null);
    })
    .sort(byClaimOrder);

/** `id`: another one, where polls have made the old one known. */
export function claim(item: AnyItem, id: string, proof: Proof, ttlSeconds: number): void {
  if (id !== item.id) item.oldIds.push(item.id);
  if (item.state === 'active') item.handOvers += 1;
  else supersede(item);
  item.handOutCount += 1;
  const { lastHeartbeat, replaced } = { lastHeartbeat: null, replaced: null };
  Object.assign(item, { id, proof, lane: 'process', state: 'active', leaseSeconds: ttlSeconds, ttlSeconds });
  Object.assign(item, { lastHeartbeat, replaced, known: true, reservedBy: null, isLastHandOut: false });
  Object.assign(item, { started: true, nextAttempt: 'none' });
}

/** By all that the holder knows of it; also past its end, while nobody took over. */
export const isHeldBy = ({ proof }: AnyItem, { seq, workerId, handOut, expiresAt }: Proof): boolean =>
  proof !== null &&
  proof.seq === seq &&
  proof.workerId === workerId &&
  proof.handOut === handOut &&
  proof.expiresAt === expiresAt;

/** Never shortened. */
export function renew(item: AnyItem, proof: Proof, ttlSeconds: number): void {
  const leaseSeconds = Math.max(item.leaseSeconds ?? 0, ttlSeconds);
  Object.assign(item, { proof, leaseSeconds, ttlSeconds });
}

export type Settlement =
  | { readonly how: 'complete'; readonly unlessCancelled: boolean }
  | { readonly how: 'give back' }
  | { readonly how: 'fail'; readonly isFinal: boolean; readonly error: string };

/** False, and nothing changed, when it lost to a request to cancel. */
export function settle(item: AnyItem, settlement: Settlement): boolean {
  switch (settlement.how) {
    case 'complete':
      if (settlement.unlessCancelled && item.isCancelRequested) return false;
      end(item, 'worker');
      item.outcome = 'succeeded';
      return true;
    case 'give back':
      if (item.isCancelRequested) end(item, 'cancelled');
      else queueAgain(item);
      return true;
    case 'fail':
      item.lastError = settlement.error;
      if (item.isCancelRequested) end(item, 'cancelled');
      else if (settlement.isFinal || item.attempt >= (item.maxAttempts ?? MAX_ATTEMPTS)) end(item, 'failed');
      else {
        queueAgain(item);
        item.attempt += 1;
        item.nextAttempt = 'future';
      }
      if (item.state === 'stopped') item.outcome = 'failed';
      return true;
  }
}

const queueAgain = (item: AnyItem): void =>
  void Object.assign(item, { state: 'queued', leaseSeconds: null, proof: null });

export type CancelRequest = 'not found' | 'ended' | 'recorded' | 'asked before' | 'over, cancelled' | 'over';

/** What is queued ends at once; who holds it is told by a renewal. */
export function requestCancel(item: AnyItem): CancelRequest {
  if (item.lane !== 'process') return 'not found';
  if (item.state === 'stopped') return item.stopReason === 'cancelled' ? 'over, cancelled' : 'over';
  if (item.isCancelRequested) return 'asked before';
  item.isCancelRequested = true;
  if (item.state !== 'queued') return 'recorded';
  end(item, 'cancelled');
  return 'ended';
}
