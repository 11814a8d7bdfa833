import { setTimeout as sleep } from 'node:timers/promises';
import type { Claimed } from './claim.ts';
import {
  type Handler,
  type HandlerContext,
  type Logger,
  type OnReclaimed,
  type Settlement,
  VERDICTS,
} from './handler.ts';
import { type Keeper, keepLease } from './keep-lease.ts';
import { LeaseError } from './lease.ts';
import type { RunnerStore } from './store.ts';

export type ItemOptions<Transaction> = {
  readonly store: RunnerStore<Transaction>;
  readonly handler: Handler<Transaction> | undefined;
  readonly onReclaimed: OnReclaimed<Transaction>;
  readonly ttlSeconds: number;
  readonly stallSeconds: number;
  readonly fetch: typeof fetch;
  readonly logger: Logger;
  /** Aborts when what runs still is to be given back. */
  readonly released: AbortSignal;
  /** The item failed, and is due again in so long. */
  readonly retryIn: (milliseconds: number) => void;
};

/** A settlement that the store did not answer is tried again after this, and up to as long again, while the lease lives. */
const RETRY_MS = 500;
/** A settlement that is under way when the grace is over is waited for this long: it mostly is about to end. */
const SETTLING_MS_MAX = 1_000;

/** How the work of an item came out. `left`: another one has it, or will. */
type Outcome<Transaction> =
  | { readonly kind: 'done'; readonly settlement: Settlement<Transaction> | undefined; readonly result: unknown }
  | { readonly kind: 'failed'; readonly error: unknown; readonly isFinal: boolean }
  | { readonly kind: 'left'; readonly error: unknown }
  | { readonly kind: 'released' };

/**
 * Runs one item under its lease and settles it: completed, its settlement in the same transaction; failed; given back; or left to
 * whoever takes over. A handler that ignores its signal is not waited for: what it still writes with the proof is refused.
 */
export async function runItem<Transaction>(item: Claimed, options: ItemOptions<Transaction>): Promise<void> {
  const { store, ttlSeconds, stallSeconds } = options;
  const keeper = keepLease(item, { store, ttlSeconds, stallSeconds });
  const outcome = await outcomeOf(keeper, options);
  await keeper.close();
  await settle(keeper.item, outcome, options);
}

async function outcomeOf<Transaction>(
  keeper: Keeper,
  { store, handler, onReclaimed, fetch, logger, released }: ItemOptions<Transaction>,
): Promise<Outcome<Transaction>> {
  // Not AbortSignal.any: what it makes of a signal that lives as long as the runner is kept as long.
  const stop = new AbortController();
  const context: HandlerContext<Transaction> = {
    signal: stop.signal,
    progress: keeper.progress,
    tx: (run) =>
      keeper.pin(({ lease }) =>
        store.transaction(async (transaction) => {
          await store.assert(lease, transaction);
          return run(transaction);
        }),
      ),
    enqueue: (request, transaction) => store.enqueue(request, transaction),
    fetch,
    logger,
  };
  const work = async (): Promise<Outcome<Transaction>> => {
    const { item } = keeper;
    const verdict = item.isReclaimed ? await onReclaimed(item, context) : 'run';
    // To run what may be done is not what an answer that nobody understands stands for.
    if (!VERDICTS.includes(verdict)) throw new TypeError(`onReclaimed must answer one of ${VERDICTS.join(', ')}`);
    if (verdict === 'done') return { kind: 'done', settlement: undefined, result: undefined };
    if (verdict === 'fail') return { kind: 'failed', error: 'given up after its claimant died', isFinal: true };
    if (handler === undefined) throw new TypeError(`there is no handler for ${item.kind}`);
    const answer = (await handler(item, context)) ?? undefined;
    if (typeof answer === 'function') return { kind: 'done', settlement: answer, result: undefined };
    if (answer !== undefined && !(typeof answer === 'object' && 'result' in answer)) {
      throw new TypeError('a handler must answer its settlement, a function, or { result }, or nothing');
    }
    return { kind: 'done', settlement: undefined, result: answer?.result };
  };
  const ended = new AbortController();
  const given = new Promise<Outcome<Transaction>>((resolve) => {
    void keeper.givenUp.then(() => resolve({ kind: 'left', error: keeper.signal.reason }));
    const release = () => {
      stop.abort(released.reason);
      resolve({ kind: 'released' });
    };
    released.addEventListener('abort', release, { signal: ended.signal });
    keeper.signal.addEventListener('abort', () => stop.abort(keeper.signal.reason), { signal: ended.signal });
    if (released.aborted) release();
  });
  try {
    return await Promise.race([
      work().catch((error: unknown): Outcome<Transaction> => ({ kind: 'failed', error, isFinal: false })),
      given,
    ]);
  } finally {
    ended.abort();
  }
}

async function settle<Transaction>(
  item: Claimed,
  outcome: Outcome<Transaction>,
  options: ItemOptions<Transaction>,
): Promise<void> {
  const { logger, released } = options;
  const leaseEndsAtMs = item.lease.askedAtMs + item.lease.ttlSeconds * 1_000;
  const about = { work: item.id, kind: item.kind };
  for (;;) {
    try {
      const settled = settleOnce(item, outcome, options);
      if (outcome.kind !== 'done') return await settled;
      if (await isInTime(settled, leaseEndsAtMs, released)) return;
      // It holds the item: either it commits yet, or it is rolled back and another takes over.
      return logger.warn(about, 'the settlement of an item took too long: it is not waited for');
    } catch (error) {
      if (error instanceof LeaseError && error.code === 'lease_lost') {
        return logger.warn({ ...about, err: error }, 'the lease was lost before the item was settled');
      }
      if (!isUnavailable(error)) {
        // The settlement's own failure, or a request to cancel that was there first: the item ends as failed, or as cancelled.
        if (outcome.kind !== 'done') throw error;
        return settle(item, { kind: 'failed', error, isFinal: false }, options);
      }
      if (released.aborted || performance.now() >= leaseEndsAtMs) {
        return logger.warn(
          { ...about, err: error },
          'the item could not be settled in time: its lease is left to lapse',
        );
      }
      await sleep(RETRY_MS * (1 + Math.random()), undefined, { signal: released }).catch(() => {});
    }
  }
}

/** Whether it ended before the lease, and not too long after the release. Rejects as it does. */
async function isInTime(settled: Promise<void>, leaseEndsAtMs: number, released: AbortSignal): Promise<boolean> {
  const { promise: late, resolve } = Promise.withResolvers<false>();
  const ended = new AbortController();
  let timer = setTimeout(resolve, Math.max(0, leaseEndsAtMs - performance.now()), false);
  const hurry = () => {
    clearTimeout(timer);
    timer = setTimeout(resolve, Math.min(SETTLING_MS_MAX, Math.max(0, leaseEndsAtMs - performance.now())), false);
  };
  released.addEventListener('abort', hurry, { signal: ended.signal });
  if (released.aborted) hurry();
  try {
    return await Promise.race([settled.then(() => true), late]);
  } finally {
    ended.abort();
    clearTimeout(timer);
  }
}

async function settleOnce<Transaction>(
  { lease, id, kind, attempt }: Claimed,
  outcome: Outcome<Transaction>,
  { store, logger, retryIn }: ItemOptions<Transaction>,
): Promise<void> {
  switch (outcome.kind) {
    case 'left':
      logger.warn(
        { work: id, kind, err: outcome.error },
        'the work of an item was given up: another will take it over',
      );
      return;
    case 'released':
      await store.requeue(lease);
      return;
    case 'failed': {
      const { error, isFinal } = outcome;
      const { state, reason, retryInMs } = await store.fail(lease, error, { isFinal });
      const about = { work: id, kind, attempt, state, reason, retryInMs, err: error };
      if (reason === 'cancelled') logger.info(about, 'the work of an item was cancelled');
      else logger.warn(about, 'the work of an item failed');
      if (retryInMs !== null) retryIn(retryInMs);
      return;
    }
    case 'done': {
      const { settlement, result } = outcome;
      if (settlement === undefined) {
        await store.complete(lease, { unlessCancelled: true, result });
        return;
      }
      await store.transaction(async (transaction) => {
        // First: it locks the item, and without the proof nothing is written.
        await store.complete(lease, { unlessCancelled: true }, transaction);
        await settlement(transaction);
      });
    }
  }
}

const isUnavailable = (error: unknown): boolean =>
  error instanceof Error && 'code' in error && error.code === 'unavailable';
