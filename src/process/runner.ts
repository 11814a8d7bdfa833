import { setTimeout as sleep } from 'node:timers/promises';
import type { CallerTransaction } from '../db/connect.ts';
import type { Enqueued, EnqueueRequest } from '../queue/enqueue.ts';
import { QueueError } from '../queue/errors.ts';
import { WORK_KINDS, type WorkKind } from '../queue/items.ts';
import { checkInteger } from '../queue/limits.ts';
import type { Claimed } from './claim.ts';
import { checkTtl } from './lease.ts';
import { type ItemOptions, runItem } from './run-item.ts';
import type { WorkStore } from './store.ts';

/** What a handler may write in the settlement's transaction: it commits exactly when the item is done. */
export type Settlement<Transaction = CallerTransaction> = (transaction: Transaction) => Promise<void> | void;

/** All that a handler needs is handed in, so that the same one runs in any host. */
export type HandlerContext<Transaction = CallerTransaction> = {
  /**
   * Aborts when the work is to end, with a LeaseError (`lease_lost`, `work_stalled`, `cancelled`) or, when the runner shuts down and its
   * grace is over, an AbortError.
   */
  readonly signal: AbortSignal;
  /** The work got on: without it for `stallSeconds` the work is given up. */
  progress(): void;
  /** Runs in a transaction in which the proof is good until the commit. Throws LeaseError lease_lost. */
  tx<Result>(run: (transaction: Transaction) => Promise<Result>): Promise<Result>;
  enqueue(request: EnqueueRequest, transaction?: Transaction): Promise<Enqueued>;
  readonly fetch: typeof fetch;
  readonly logger: Logger;
};

export type Logger = Record<'info' | 'warn' | 'error', (details: object, message: string) => void>;

/**
 * Does the work of one item. What it answers is the settlement, when that writes something: the item is completed in the same
 * transaction. A throw is a failed attempt.
 */
export type Handler<Transaction = CallerTransaction> = (
  item: Claimed,
  context: HandlerContext<Transaction>,
  // biome-ignore lint/suspicious/noConfusingVoidType: a handler that answers nothing is one, too
) => Promise<Settlement<Transaction> | void>;

/** What is to become of an item whose claimant died. `done`: its result is sealed, complete it. */
export type Verdict = 'run' | 'done' | 'fail';

export type RunnerOptions<Transaction = CallerTransaction> = {
  readonly store: WorkStore<Transaction>;
  readonly handlers: { readonly [kind in WorkKind]?: Handler<Transaction> };
  /** How many items at once, of all kinds: 1 to 1000, default 4. */
  readonly concurrency?: number;
  /** Default 60. */
  readonly ttlSeconds?: number;
  /** Work that makes no progress for so long is given up; default: never. */
  readonly stallSeconds?: number;
  /** How often lapsed leases are looked for, default 1000. */
  readonly sweepIntervalMs?: number;
  /** At the latest so long after the last look, work is looked for without having been woken; default 5000. */
  readonly backstopMs?: number;
  /** How long running work may go on after the shutdown began; default 10. */
  readonly graceSeconds?: number;
  /** Who claims; default: the store's own. */
  readonly workerId?: string;
  /** Decides for an item that was taken over: part of its work, or all of it, may be done. Default: `run`. */
  readonly onReclaimed?: (item: Claimed, context: HandlerContext<Transaction>) => Promise<Verdict> | Verdict;
  readonly fetch?: typeof fetch;
  readonly logger?: Logger;
};

const SILENT: Logger = { info() {}, warn() {}, error() {} };
/** A store that fails is asked again after half to all of this. */
const RETRY_MS = 1_000;

/**
 * Claims work and runs it. `run(signal)` resolves when the signal has aborted and everything has stopped: no more is claimed, running
 * work goes on for the grace with its leases kept, the rest is released at once, its attempts unspent. No handler's throw and no
 * failure of the store ends it. Refuses: invalid_request.
 */
export function createRunner<Transaction = CallerTransaction>(options: RunnerOptions<Transaction>) {
  const { store, handlers, concurrency = 4, ttlSeconds = 60, sweepIntervalMs = 1_000, backstopMs = 5_000 } = options;
  const { graceSeconds = 10, workerId, stallSeconds, onReclaimed = () => 'run' as const } = options;
  const { logger = SILENT, fetch = globalThis.fetch } = options;
  const kinds = WORK_KINDS.filter((kind) => handlers[kind] !== undefined);
  const unknown = Object.keys(handlers).find((kind) => !WORK_KINDS.includes(kind as WorkKind));
  if (unknown !== undefined || kinds.length === 0) {
    throw new QueueError(
      'invalid_request',
      `handlers must name one or more of ${WORK_KINDS.join(', ')}${unknown === undefined ? '' : `, not ${unknown}`}`,
    );
  }
  checkInteger('concurrency', concurrency, 1, 1_000);
  checkTtl(ttlSeconds);
  const claimBy = { ttlSeconds, workerId };

  async function run(signal: AbortSignal): Promise<void> {
    const running = new Set<Promise<void>>();
    /** Ends the grace. */
    const release = new AbortController();
    let wake = () => {};
    let isWoken = true;
    const wakeUp = () => {
      isWoken = true;
      wake();
    };

    const start = (item: Claimed) => {
      const itemOptions: ItemOptions<Transaction> = {
        ...{ store, handler: handlers[item.kind], onReclaimed, ttlSeconds, stallSeconds, fetch, logger },
        released: release.signal,
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

    /** Kinds take turns, so that none starves. */
    const claimAll = async () => {
      for (let found = true; found; ) {
        found = false;
        for (const kind of kinds) if (isFree() && (await take(() => store.claim(kind, claimBy)))) found = true;
      }
    };

    const sweep = async () => {
      if (!isFree()) return;
      for (const lease of await store.expired(kinds, concurrency)) {
        if (isFree()) await take(() => store.reclaim(lease, claimBy));
      }
    };

    const pause = async (milliseconds: number) => {
      await sleep(milliseconds, undefined, { signal }).catch(() => {});
    };

    const retrying = async (what: string, ask: () => Promise<void>) => {
      try {
        await ask();
        return true;
      } catch (error) {
        logger.warn({ err: error }, `${what} failed`);
        await pause(RETRY_MS * (0.5 + Math.random() / 2));
        return false;
      }
    };

    const claiming = async () => {
      while (!signal.aborted) {
        // What wakes during the look is looked for after it.
        isWoken = false;
        if (!(await retrying('claiming', claimAll)) || isWoken || signal.aborted) continue;
        const woken = new Promise<void>((resolve) => {
          wake = resolve;
        });
        const backstop = new AbortController();
        await Promise.race([woken, sleep(backstopMs, undefined, { signal: backstop.signal }).catch(() => {})]);
        backstop.abort();
      }
    };

    const sweeping = async () => {
      while (!signal.aborted) {
        await retrying('the sweep', sweep);
        await pause(sweepIntervalMs);
      }
    };

    const stopListening = store.onWork(kinds, wakeUp);
    signal.addEventListener('abort', wakeUp);
    try {
      await Promise.all([claiming(), sweeping()]);
      const grace = new AbortController();
      void sleep(graceSeconds * 1_000, undefined, { signal: grace.signal }).then(
        () => release.abort(),
        () => {},
      );
      await Promise.all(running);
      grace.abort();
    } finally {
      stopListening();
      signal.removeEventListener('abort', wakeUp);
    }
  }

  return { run };
}

export type Runner = ReturnType<typeof createRunner>;
