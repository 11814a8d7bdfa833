import { QueueError } from '../queue/errors.ts';
import { checkTtl } from './checks.ts';
import type { Claimed } from './claim.ts';
import { type Lease, LeaseError } from './lease.ts';
import type { Renewal, WorkStore } from './store.ts';

export type KeepLeaseOptions = {
  readonly store: Pick<WorkStore, 'renew'>;
  /** What each renewal asks for: 1 to 86400. */
  readonly ttlSeconds: number;
  /** Without progress for so long the work is given up; absent or <= 0: never. */
  readonly stallSeconds?: number | undefined;
  /** The local clock, and its timers; tests bring their own. */
  readonly timing?: Timing;
};

/** A monotonic clock in milliseconds that leases are stamped by (`performance.now()`), and one-shot timers. */
export type Timing = {
  now(): number;
  /** Answers what ends it. */
  after(milliseconds: number, run: () => void): () => void;
};

export type Keeper<Item extends Claimed = Claimed> = {
  /**
   * Aborts once, with a LeaseError: `lease_lost` when the lease is lost or can no longer be trusted, `work_stalled`, or `cancelled`.
   * After `cancelled` the lease is still kept, for the work to wind down.
   */
  readonly signal: AbortSignal;
  /** Resolves when the keeping was given up: `lease_lost` or `work_stalled`. Never, otherwise. */
  readonly givenUp: Promise<LeaseError>;
  /** The item with the proof as it is now. */
  readonly item: Item;
  /** The work got on. */
  progress(): void;
  /**
   * Runs `use` while no renewal is under way, so that the proof is not replaced meanwhile. Rejects with what the work was given up for,
   * once it was: whoever takes over is not to wait for it.
   */
  pin<Result>(use: (item: Item) => Promise<Result>): Promise<Result>;
  /**
   * Ends the keeping; waits for a renewal that is under way, and tries a deferred one once more. The proof is stable from then on. Answers the first failure of a
   * renewal, also of one that was made good later; undefined when there was none.
   */
  close(): Promise<unknown>;
};

const REAL: Timing = {
  now: () => performance.now(),
  after(milliseconds, run) {
    const timer = setTimeout(run, milliseconds);
    return () => clearTimeout(timer);
  },
};

const lengthOf = ({ ttlSeconds }: Lease): number => ttlSeconds * 1_000;

/** Refuses: invalid_request. */
export function checkStall(stallSeconds: unknown): void {
  if (typeof stallSeconds !== 'number' || Number.isNaN(stallSeconds)) {
    throw new QueueError('invalid_request', 'stallSeconds must be a number');
  }
}

/**
 * Keeps a claimed item's lease alive while its work runs: renews at the shorter of a third of the TTL and the stall budget. Local time
 * only shortens trust (design §6): it ends a TTL after the last successful renewal was asked for, whatever is on its way then. A renewal
 * that nobody answered is tried again at the next tick. Work that has stalled is given up: no more renewals, the lease is left to lapse, so that another takes over.
 * Refuses: invalid_request.
 */
export function keepLease<Item extends Claimed>(
  item: Item,
  { store, ttlSeconds, stallSeconds = 0, timing = REAL }: KeepLeaseOptions,
): Keeper<Item> {
  checkTtl(ttlSeconds);
  checkStall(stallSeconds);
  const stallMs = stallSeconds > 0 ? stallSeconds * 1_000 : Number.POSITIVE_INFINITY;
  const tickMs = Math.min((ttlSeconds * 1_000) / 3, stallMs);
  const controller = new AbortController();

  let current = item;
  // The first lease may be of another length, and of some age.
  const heldSince = Math.min(item.lease.askedAtMs, timing.now());
  let trustedUntil = heldSince + lengthOf(item.lease);
  let tickAt = heldSince + Math.min(lengthOf(item.lease) / 3, tickMs);
  let progressAt = timing.now();
  let renewal: Promise<void> | undefined;
  let pins = 0;
  /** The last renewal was deferred: if it was done, there is another proof than the one at hand. */
  let isUnsure = false;
  let over = false;
  let gaveUp: LeaseError | undefined;
  let failure: unknown;
  let stopTimer = () => {};
  let tellGivenUp: (error: LeaseError) => void = () => {};
  const givenUp = new Promise<LeaseError>((resolve) => {
    tellGivenUp = resolve;
  });

  const giveUp = (error: LeaseError) => {
    over = true;
    gaveUp = error;
    stopTimer();
    controller.abort(error);
    tellGivenUp(error);
  };

  /** Whatever comes first: the next renewal, the end of patience, the end of trust. */
  const schedule = () => {
    stopTimer();
    if (over) return;
    const next = Math.min(isFree() ? tickAt : Number.POSITIVE_INFINITY, progressAt + stallMs, trustedUntil);
    stopTimer = timing.after(Math.max(0, next - timing.now()), turn);
  };

  const isFree = () => renewal === undefined && pins === 0;

  const turn = () => {
    const now = timing.now();
    if (now >= trustedUntil) {
      const error = new LeaseError('lease_lost', 'no renewal came in time: the lease can no longer be trusted', {
        cause: failure,
      });
      failure ??= error;
      giveUp(error);
    } else if (now >= progressAt + stallMs) {
      giveUp(new LeaseError('work_stalled', `the work made no progress for ${stallSeconds} s`));
    } else {
      if (now >= tickAt && isFree()) renew();
      schedule();
    }
  };

  const renew = () => {
    tickAt = timing.now() + Math.min(lengthOf(current.lease) / 3, tickMs); // it may be shorter than was asked for
    let stopWaiting = () => {};
    const late = new Promise<Renewal>((resolve) => {
      const error = new Error('the renewal was not answered while the lease lived');
      stopWaiting = timing.after(trustedUntil - timing.now(), () => resolve({ outcome: 'deferred', error }));
    });
    const asked = store
      .renew(current.lease, ttlSeconds, { isRetry: isUnsure })
      .catch((error: unknown): Renewal => ({ outcome: 'deferred', error }));
    renewal = Promise.race([asked, late]).then((outcome) => {
      stopWaiting();
      renewal = undefined;
      take(outcome);
      schedule();
    });
  };

  /** Waits for the renewal under way; what it leaves unsure is asked for once more, so that the proof is the present one. */
  const settleProof = async () => {
    while (renewal !== undefined) await renewal;
    if (!isUnsure || gaveUp !== undefined || timing.now() >= trustedUntil) return;
    renew();
    await renewal;
  };

  const take = (outcome: Renewal) => {
    isUnsure = outcome.outcome === 'deferred';
    if (outcome.outcome === 'renewed') {
      current = Object.freeze({ ...current, lease: outcome.lease });
      trustedUntil = Math.max(trustedUntil, outcome.lease.askedAtMs + lengthOf(outcome.lease));
      if (outcome.isCancelRequested && !over)
        controller.abort(new LeaseError('cancelled', 'the item was asked to end'));
      return;
    }
    failure ??= outcome.error;
    if (outcome.outcome === 'lost' && !over) giveUp(outcome.error);
  };

  schedule();
  return {
    signal: controller.signal,
    givenUp,
    get item() {
      return current;
    },
    progress() {
      progressAt = timing.now();
    },
    async pin(use) {
      pins++;
      try {
        await settleProof();
        if (gaveUp !== undefined) throw gaveUp;
        return await use(current);
      } finally {
        pins--;
        schedule();
      }
    },
    async close() {
      over = true;
      stopTimer();
      await settleProof();
      return failure;
    },
  };
}
