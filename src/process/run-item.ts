import { setTimeout as sleep } from 'node:timers/promises';
import type { Claimed } from './claim.ts';
import { type Keeper, keepLease } from './keep-lease.ts';
import { LeaseError } from './lease.ts';
import type { Handler, HandlerContext, RunnerOptions, Settlement } from './runner.ts';
import type { WorkStore } from './store.ts';

export type ItemOptions<Transaction> = Required<
  Pick<RunnerOptions<Transaction>, 'onReclaimed' | 'ttlSeconds' | 'fetch' | 'logger'>
> & {
  readonly store: WorkStore<Transaction>;
  readonly handler: Handler<Transaction> | undefined;
  readonly stallSeconds: number | undefined;
  /** Aborts when what runs still is to be given back. */
  readonly released: AbortSignal;
};

/** A settlement that the store did not answer is tried again after half to all of this, while the lease lives. */
const RETRY_MS = 1_000;

/** How the work of an item came out. `left`: another one has it, or will. */
type Outcome<Transaction> =
  | { readonly kind: 'done'; readonly settlement: Settlement<Transaction> | undefined }
  | { readonly kind: 'failed'; readonly error: unknown; readonly isFinal: boolean }
  | { readonly kind: 'released' | 'left' };

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
  const context: HandlerContext<Transaction> = {
    signal: AbortSignal.any([keeper.signal, released]),
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
    if (verdict === 'done') return { kind: 'done', settlement: undefined };
    if (verdict === 'fail') return { kind: 'failed', error: 'given up after its claimant died', isFinal: true };
    const settlement = await handler?.(item, context);
    return { kind: 'done', settlement: settlement ?? undefined };
  };
  const ended = new AbortController();
  const given = new Promise<Outcome<Transaction>>((resolve) => {
    void keeper.givenUp.then(() => resolve({ kind: 'left' }));
    const release = () => resolve({ kind: 'released' });
    if (released.aborted) release();
    released.addEventListener('abort', release, { signal: ended.signal });
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
  const { logger, ttlSeconds, released } = options;
  const { lease } = item;
  const leaseEndsAtMs = lease.askedAtMs + ttlSeconds * 1_000;
  const about = { work: item.id, kind: item.kind };
  for (;;) {
    try {
      return await settleOnce(item, outcome, options);
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
      await sleep(RETRY_MS * (0.5 + Math.random() / 2));
    }
  }
}

async function settleOnce<Transaction>(
  { lease, id, kind }: Claimed,
  outcome: Outcome<Transaction>,
  { store, logger }: ItemOptions<Transaction>,
): Promise<void> {
  switch (outcome.kind) {
    case 'left':
      return;
    case 'released':
      await store.requeue(lease);
      return;
    case 'failed': {
      logger.warn({ work: id, kind, err: outcome.error }, 'the work of an item failed');
      await store.fail(lease, outcome.error, { isFinal: outcome.isFinal });
      return;
    }
    case 'done': {
      const { settlement } = outcome;
      if (settlement === undefined) {
        await store.complete(lease, { unlessCancelled: true });
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
