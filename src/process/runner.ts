import { setTimeout as sleep } from 'node:timers/promises';
import type { QueueTransaction } from '../db/connect.ts';
import type { WorkKind } from '../queue/items.ts';
import { checkRunner } from './check-runner.ts';
import type { Claimed } from './claim.ts';
import { createDueTimes } from './due-times.ts';
import type { Handler, Logger, OnReclaimed } from './handler.ts';
import { type ItemOptions, runItem } from './run-item.ts';
import type { RunnerStore } from './store.ts';

export type RunnerOptions<Transaction = QueueTransaction> = {
  /** A queue: its transactions are Kysely's. */
  readonly store: NoInfer<RunnerStore<Transaction>>;
  readonly handlers: { readonly [kind in WorkKind]?: Handler<Transaction> | undefined };
  /** How many items at once, of all kinds: 1 to 1000, default 4. */
  readonly concurrency?: number | undefined;
  /** 1 to 86400, default 60. */
  readonly ttlSeconds?: number | undefined;
  /** Work that makes no progress for so long is given up; absent or <= 0: never. */
  readonly stallSeconds?: number | undefined;
  /** How often lapsed leases are looked for, 10 to 3600000, default 1000. */
  readonly sweepIntervalMs?: number | undefined;
  /** At the latest so long after the last look, work is looked for without having been woken; 10 to 3600000, default 5000. */
  readonly backstopMs?: number | undefined;
  /** How long running work may go on after the shutdown began; 0 to 86400, default 10. */
  readonly graceSeconds?: number | undefined;
  /** Who claims, 1 to 256 characters; default: the store's own. */
  readonly workerId?: string | undefined;
  /** Decides for an item that was taken over: part of its work, or all of it, may be done. Default: `run`. */
  readonly onReclaimed?: OnReclaimed<Transaction> | undefined;
  readonly fetch?: typeof fetch | undefined;
  /** Told of failed attempts, lost leases and a store that is away; default: the console, without what is only informative. */
  readonly logger?: Logger | undefined;
};

/** A store that fails is asked again after this, and up to as long again: at most twice a second. */
const RETRY_MS = 500;

/**
 * Claims work and runs it. `run(signal)` resolves when the signal has aborted and everything has stopped: no more is claimed, running
 * work goes on for the grace with its leases kept, the rest is released at once, its attempts unspent. No handler's throw and no
 * failure of the store ends it. Refuses: invalid_request.
 */
export function createRunner<Transaction = QueueTransaction>(options: RunnerOptions<Transaction>) {
  const { store, handlers, kinds, concurrency, claimBy, stallSeconds, onReclaimed, fetch, ...checked } =
    checkRunner(options);
  const { sweepIntervalMs, backstopMs, graceSeconds, logger } = checked;

  async function run(signal: AbortSignal): Promise<void> {
    const running = new Set<Promise<void>>();
    const retries = createDueTimes();
    const turns = [...kinds];
    /** Ends the grace. */
    const release = new AbortController();
    let [isWoken, sweepAt, backstopAt] = [true, 0, 0];
    let wake = () => {};
    const wakeUp = () => {
      isWoken = true;
      wake();
    };

    const start = (item: Claimed) => {
      const itemOptions: ItemOptions<Transaction> = {
        ...{ store, handler: handlers[item.kind], onReclaimed, ...claimBy, stallSeconds, fetch, logger },
        released: release.signal,
        retryIn: (milliseconds) => retries.add(performance.now() + milliseconds),
      };
      const work: Promise<void> = runItem(item, itemOptions)
        .catch((error: unknown) => logger.error({ err: error, work: item.id }, 'an item could not be settled'))
        .finally(() => {
          running.delete(work);
          wakeUp();
        });
      running.add(work);
    };

    /** What comes after the shutdown began is given back. */
    const take = async (claim: () => Promise<Claimed | null>): Promise<boolean> => {
      const item = await claim();
      if (item !== null && signal.aborted) await store.requeue(item.lease);
      else if (item !== null) start(item);
      return item !== null;
    };

    const isFree = () => !signal.aborted && running.size < concurrency;

    /** Kinds take turns, also from one look to the next, so that none starves where few run at once. */
    const claimAll = async () => {
      for (let empty = 0; empty < turns.length && isFree(); ) {
        const kind = turns.shift();
        if (kind === undefined) return;
        turns.push(kind);
        empty = (await take(() => store.claim(kind, claimBy))) ? 0 : empty + 1;
      }
    };

    const sweep = async () => {
      if (!isFree()) return;
      for (const lease of await store.expired(kinds, concurrency)) {
        if (isFree()) await take(() => store.reclaim(lease, claimBy));
      }
    };

    /** One thing after the other: two that take at once would take one too many, and ask a store that is away twice as often. */
    const look = async () => {
      if (performance.now() >= sweepAt) {
        await sweep();
        sweepAt = performance.now() + sweepIntervalMs;
      }
      if (!isWoken && performance.now() < Math.min(backstopAt, retries.next())) return;
      // What wakes during the look is looked for after it.
      isWoken = false;
      retries.pass(performance.now());
      backstopAt = 0;
      await claimAll();
      backstopAt = performance.now() + backstopMs;
    };

    const pause = async (milliseconds: number, until: AbortSignal) => {
      await sleep(milliseconds, undefined, { signal: until }).catch(() => {});
    };

    const untilWoken = async () => {
      if (isWoken) return;
      const woken = new AbortController();
      wake = () => woken.abort();
      const next = Math.min(sweepAt, backstopAt, retries.next());
      await pause(Math.max(0, next - performance.now()), woken.signal);
    };

    const looking = async () => {
      while (!signal.aborted) {
        try {
          await look();
        } catch (error) {
          logger.warn({ err: error }, 'looking for work failed');
          await pause(RETRY_MS * (1 + Math.random()), signal);
          continue;
        }
        await untilWoken();
      }
    };

    const grace = new AbortController();
    const shutDown = () => {
      wakeUp();
      void sleep(graceSeconds * 1_000, undefined, { signal: grace.signal }).then(
        () => release.abort(),
        () => {},
      );
    };
    const stopListening = store.onWork(kinds, wakeUp);
    signal.addEventListener('abort', shutDown);
    try {
      await looking();
      await Promise.all(running);
    } finally {
      grace.abort();
      stopListening();
      signal.removeEventListener('abort', shutDown);
    }
  }

  return { run };
}

export type Runner = ReturnType<typeof createRunner>;
