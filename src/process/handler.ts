import type { QueueTransaction } from '../db/connect.ts';
import type { Enqueued, EnqueueRequest } from '../queue/enqueue.ts';
import type { Claimed } from './claim.ts';

/** What a handler may write in the settlement's transaction: it commits exactly when the item is done. A promise is waited for. */
export type Settlement<Transaction = QueueTransaction> = (transaction: Transaction) => unknown;

/** All that a handler needs is handed in, so that the same one runs in any host. */
export type HandlerContext<Transaction = QueueTransaction> = {
  /**
   * Aborts when the work is to end, with a LeaseError (`lease_lost`, `work_stalled`, `cancelled`) or, when the runner shuts down and its
   * grace is over, an AbortError. But for `cancelled` nobody waits for the work from then on.
   */
  readonly signal: AbortSignal;
  /** The work got on: without it for `stallSeconds` the work is given up. */
  progress(): void;
  /**
   * Runs in a transaction in which the proof is good until the commit; meanwhile the lease is not renewed. Throws LeaseError lease_lost;
   * work_stalled when the work was given up for that.
   */
  tx<Result>(run: (transaction: Transaction) => Promise<Result>): Promise<Result>;
  enqueue(request: EnqueueRequest, transaction?: Transaction): Promise<Enqueued>;
  readonly fetch: typeof fetch;
  readonly logger: Logger;
};

export type Logger = Record<'info' | 'warn' | 'error', (details: object, message: string) => void>;

/** What is kept of the work: any JSON value of at most 256 KiB. */
export type Result = { readonly result: unknown };

/**
 * Does the work of one item. What it answers is the settlement, when that writes something: the item is completed in the same
 * transaction; or a result, which is kept with the item; or nothing. A throw, also the settlement's, is a failed attempt. A settlement is not waited for past the
 * end of the item's lease. Where there are no transactions (`createWireRunner`) a settlement fails.
 */
export type Handler<Transaction = QueueTransaction> = (
  item: Claimed,
  context: HandlerContext<Transaction>,
  // biome-ignore lint/suspicious/noConfusingVoidType: a handler that answers nothing is one, too
) => Promise<Settlement<Transaction> | Result | void>;

export const VERDICTS = ['run', 'done', 'fail'] as const;
/** What is to become of an item whose claimant died. `done`: its result is sealed, complete it. `fail`: set it aside. */
export type Verdict = (typeof VERDICTS)[number];

export type OnReclaimed<Transaction = QueueTransaction> = (
  item: Claimed,
  context: HandlerContext<Transaction>,
) => Promise<Verdict> | Verdict;
