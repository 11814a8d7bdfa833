import { end, hasLapsed, type Item, isVisible, type NotBefore, type Outcome } from './model.ts';
import { MAX_ATTEMPTS } from './process-lane.ts';
import { requeue } from './wire-lane.ts';

/** What the issue of holders says of items that are given back or reported on, in plain data. */
type AnyItem = Item<unknown>;

export type HolderVerdict = 'held' | 'winds down' | 'over' | 'lapsed' | 'released before' | 'not found';

/** What the holder of a hand-out is, by its token. */
export function judgeHolder<HandOut>(item: Item<HandOut>, by: HandOut): HolderVerdict {
  if (item.handedBack.get(by) === 'released') return 'released before';
  if (!isVisible(item) || item.heldBy !== by) return 'not found';
  if (item.state === 'stopped') return 'over';
  if (item.leaseSeconds === null || hasLapsed(item)) return 'lapsed';
  return item.state === 'stopping' ? 'winds down' : 'held';
}

/** It goes back as if never handed out, under a new id. */
export function giveBack<HandOut>(
  item: Item<HandOut>,
  by: HandOut,
  id: string,
  end: 'released' | 'failed',
  notBefore: NotBefore,
): void {
  item.oldIds.push(item.id);
  item.handedBack.set(by, end);
  if (item.isSwept) item.wasBegun = true;
  requeue(item);
  item.handOutCount -= 1;
  Object.assign(item, {
    id,
    notBefore,
    known: false,
    wasActive: false,
    isSwept: false,
    heldBy: null,
    isLastHandOut: false,
  });
}

/** Why it was to end stays the reason. */
export const endWoundDown = (item: AnyItem): void => end(item, item.stopReason ?? 'worker');

export const isLastAttempt = (item: AnyItem): boolean => item.attempt >= (item.maxAttempts ?? MAX_ATTEMPTS);

/** The same again is answered the same, something else is a conflict. */
export function judgeReport<HandOut>(
  item: Item<HandOut>,
  by: HandOut,
  status: Outcome,
  result: string | null,
): 'held' | 'winds down' | 'repeated' | 'conflict' | 'lapsed' | 'not found' {
  if (item.handedBack.get(by) === 'failed') return status === 'failed' ? 'repeated' : 'conflict';
  const verdict = judgeHolder(item, by);
  if (verdict === 'released before') return 'not found';
  if (verdict !== 'over') return verdict;
  return item.outcome === status && item.result === result ? 'repeated' : 'conflict';
}

export function conclude(item: AnyItem, outcome: Outcome, result: string | null): void {
  end(item, item.stopReason ?? (outcome === 'failed' ? 'failed' : 'worker'));
  Object.assign(item, { outcome, result });
}
