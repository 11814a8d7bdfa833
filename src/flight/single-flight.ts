import { type Clock, REAL, unless } from './clock.ts';
import { type HeldLock, keepLock } from './keep-lock.ts';
import type { Attempt, LockStore } from './store.ts';

export type FlightContext = {
  /** Whoever holds the lock later has a higher one: a store that keeps the highest it has seen can refuse what comes late. */
  readonly token: number;
  /** Aborts with LockLost when the lock can no longer be trusted, and with its reason when the caller's signal does. */
  readonly signal: AbortSignal;
};

export type SingleFlightOptions<Result> = {
  /** Looks for what an earlier run left; undefined: nothing there. Asked without the lock, and once more under it. */
  readonly check: () => Promise<Result | undefined> | Result | undefined;
  /** The expensive call; leaves what `check` finds. */
  readonly run: (context: FlightContext) => Promise<Result> | Result;
  /** How long others wait when a holder dies, 1 to 3600; default 60. Renewed each third of it while `run` runs. */
  readonly ttlSeconds?: number | undefined;
  /** Ends the wait for the lock with its reason, and aborts `run`. */
  readonly signal?: AbortSignal | undefined;
};

/** Between two tries of whom nobody tells of releases: doubling, with jitter. */
const RETRY_MS_MIN = 250;
export const RETRY_MS_MAX = 5_000;

/**
 * Answers what `check` finds, or runs: of all that ask at a time, with one name, one. The others wait for its release or its
 * expiry, whichever comes first, and check again. What `check` or `run` throws comes out, with the lock released. When the holder dies, the next one runs once
 * the lock has expired. `owner` has to be one that no other flight has. Throws, besides: what the store throws, LockLost, the signal's reason.
 */
export async function singleFlight<Result>(
  store: LockStore,
  name: string,
  owner: string,
  { check, run, ttlSeconds = 60, signal }: SingleFlightOptions<Result>,
  clock: Clock = REAL,
): Promise<Result> {
  signal?.throwIfAborted();
  const found = await check();
  if (found !== undefined) return found;
  const wakes = listen(store, name, clock);
  try {
    for (let retry = 0; ; retry++) {
      wakes.forget(); // before it is looked for, or a release in between would go unheard
      const askedAt = clock.now();
      const { token, expiresInMs } = await acquire(store, name, owner, ttlSeconds, signal);
      if (token !== undefined) {
        const held = { name, token, ttlSeconds, trustedUntil: askedAt + expiresInMs };
        return await fly(store, held, { check, run, signal }, clock);
      }
      const patienceMs = wakes.isTold() ? expiresInMs : Math.min(expiresInMs, retryMs(retry));
      await wakes.wait(patienceMs, signal);
      const left = await check();
      if (left !== undefined) return left;
    }
  } finally {
    wakes.end();
  }
}

const retryMs = (retry: number): number =>
  Math.min(RETRY_MS_MAX, RETRY_MS_MIN * 2 ** retry) * (0.5 + Math.random() / 2);

/** What is acquired for a caller who has left meanwhile is let go. */
async function acquire(
  store: LockStore,
  name: string,
  owner: string,
  ttlSeconds: number,
  signal: AbortSignal | undefined,
): Promise<Attempt> {
  const acquiring = store.acquire(name, owner, ttlSeconds);
  try {
    return await unless(signal, acquiring);
  } catch (error) {
    void acquiring
      .then(async ({ token }) => {
        if (token !== undefined) await store.release(name, token, AbortSignal.timeout(ttlSeconds * 1_000));
      })
      .catch(() => {}); // it expires by itself
    throw error;
  }
}

async function fly<Result>(
  store: LockStore,
  held: HeldLock,
  { check, run, signal }: Pick<SingleFlightOptions<Result>, 'check' | 'run' | 'signal'>,
  clock: Clock,
): Promise<Result> {
  const kept = keepLock(store, held, clock);
  try {
    const found = await check();
    if (found !== undefined) return found;
    const either = signal === undefined ? kept.signal : AbortSignal.any([kept.signal, signal]);
    either.throwIfAborted();
    return await run({ token: held.token, signal: either });
  } finally {
    await kept.release();
  }
}

/** What ends a wait: a release is remembered from `forget` on. */
function listen(store: LockStore, name: string, clock: Clock) {
  let isReleased = false;
  let wake = () => {};
  const end =
    store.onRelease?.(name, () => {
      isReleased = true;
      wake();
    }) ?? (() => {});
  return {
    end,
    isTold: () => store.isTold?.() ?? store.onRelease !== undefined,
    forget(): void {
      isReleased = false;
    },
    async wait(milliseconds: number, signal: AbortSignal | undefined): Promise<void> {
      if (isReleased) return signal?.throwIfAborted();
      let endTimer = () => {};
      const woken = new Promise<void>((resolve) => {
        wake = resolve;
        endTimer = clock.after(milliseconds, resolve);
      });
      await unless(signal, woken).finally(endTimer);
    },
  };
}
