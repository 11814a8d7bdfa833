import { type Clock, unless } from './clock.ts';
import type { LockStore } from './store.ts';

/** The lock ran out, or is another's: whoever holds it now may be running, too. */
export class LockLost extends Error {
  override readonly name = 'LockLost';
  readonly code = 'lock_lost';
}

export type HeldLock = {
  readonly name: string;
  readonly token: number;
  readonly ttlSeconds: number;
  readonly trustedUntil: number;
};

export type LockKeeper = {
  /** Aborts with LockLost. */
  readonly signal: AbortSignal;
  /** Waited for until the lock has expired anyway: a release that fails is none that anybody need hear of. */
  release(): Promise<void>;
};

/** Renews by thirds of the TTL. Local time only shortens trust: it ends a TTL after the last good renewal was asked for. */
export function keepLock(
  store: LockStore,
  { name, token, ttlSeconds, trustedUntil }: HeldLock,
  clock: Clock,
): LockKeeper {
  const lost = new AbortController();
  const over = new AbortController();
  let until = trustedUntil;
  let endTrust = () => {};
  let endTick = () => {};

  const stop = () => {
    endTrust();
    endTick();
  };
  const lose = (why: string) => {
    stop();
    lost.abort(new LockLost(`lock ${JSON.stringify(name)}: ${why}`));
  };
  const isOver = () => lost.signal.aborted || over.signal.aborted;
  const trust = (next: number) => {
    until = Math.max(until, next);
    endTrust();
    endTrust = clock.after(until - clock.now(), () => lose('no renewal came in time'));
  };
  const renew = () => {
    endTick = clock.after((ttlSeconds * 1_000) / 3, renew);
    const askedAt = clock.now();
    store.renew(name, token, ttlSeconds, AbortSignal.any([lost.signal, over.signal])).then(
      (lastsMs) => {
        if (isOver()) return;
        if (lastsMs === undefined) lose('it is no longer ours');
        else trust(askedAt + lastsMs);
      },
      () => {}, // asked for again at the next third; without an answer the trust ends
    );
  };
  trust(until);
  endTick = clock.after((ttlSeconds * 1_000) / 3, renew);

  return {
    signal: lost.signal,
    async release() {
      const isLost = lost.signal.aborted;
      stop();
      over.abort();
      if (isLost) return;
      const expired = new AbortController();
      const endWait = clock.after(Math.max(0, until - clock.now()), () => expired.abort());
      await unless(expired.signal, store.release(name, token, expired.signal)).catch(() => {});
      endWait();
    },
  };
}
