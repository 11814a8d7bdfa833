import type { QueueTransaction } from '../db/connect.ts';
import type { Enqueued, EnqueueRequest } from '../queue/enqueue.ts';
import type { WorkItem, WorkKind, WorkRef, WorkState } from '../queue/items.ts';
import type { MetadataPatch } from '../queue/metadata.ts';
import type { Candidate, ExpiredLease } from './candidates.ts';
import type { Claimed } from './claim.ts';
import type { Extended } from './extend.ts';
import type { Lease, LeaseError } from './lease.ts';
import type { Settled as SettledItem } from './settle.ts';

export type ClaimOptions = {
  /** 1 to 86400. */
  readonly ttlSeconds: number;
  /** 1 to 256 characters; absent: the store's own, one a process. */
  readonly workerId?: string | undefined;
};

export type Settled = Omit<SettledItem, 'topics'>;

/** `deferred`: nobody knows, since the store did not answer; the ownership is as it was, while the lease lives. */
export type Renewal =
  | ({ readonly outcome: 'renewed' } & Extended)
  | { readonly outcome: 'lost'; readonly error: LeaseError }
  | { readonly outcome: 'deferred'; readonly error: unknown };

/**
 * All that a runner and a keeper ask of a queue: the boundary of the process lane, which the Postgres queue implements
 * (`createQueue`) and another store may. Leases are frozen values; whoever holds the proof may act, nothing else counts. Verbs that take a
 * `transaction` write in it and neither commit nor roll back; without one they commit by themselves. What a verb refuses or
 * throws has changed nothing. All may fail with an error of the store's own when that does not answer (`DatabaseUnavailable`).
 */
export interface WorkStore<Transaction = QueueTransaction> {
  /** Puts work in; idempotent while live. */
  enqueue(request: EnqueueRequest, transaction?: Transaction): Promise<Enqueued>;
  /** Several statements, all or nothing. */
  transaction<Result>(run: (transaction: Transaction) => Promise<Result>): Promise<Result>;
  /** Tells when there may be work of these kinds; a hint. Answers what ends it. */
  onWork(kinds: readonly WorkKind[], listener: () => void): () => void;

  /**
   * The next item of a kind, in one step, or exactly that candidate, by compare-and-set; null when there is none, or somebody was
   * faster. Refuses: invalid_request.
   */
  claim(what: WorkKind | Candidate, options: ClaimOptions): Promise<Claimed | null>;
  /** What a claim of this kind would take of what is queued; owns nothing. */
  nextEligible(kind: WorkKind): Promise<Candidate | null>;
  /** Leases of these kinds that have run out, oldest item first, 1 to 1000; owns nothing. */
  expired(kinds: readonly WorkKind[], limit?: number): Promise<readonly ExpiredLease[]>;
  /**
   * Takes over what that lease held: only from that owner and that instant, and only if it is lapsed still. Null otherwise, and when
   * the item was ended instead: it was to be cancelled, or had been taken over too often (`exhausted`).
   */
  reclaim(lease: Lease, options: ClaimOptions): Promise<Claimed | null>;

  /**
   * Extends a lease; tells whether somebody asked for the item to end. `isRetry`: the last renewal was deferred, and may have been done all the
   * same; then the proof that it made is as good as this one. Never throws, but refuses: invalid_request.
   */
  renew(lease: Lease, ttlSeconds: number, options?: { readonly isRetry?: boolean }): Promise<Renewal>;
  /** Whether somebody asked for the held item to end. Throws LeaseError lease_lost. */
  cancelRequested(lease: Lease): Promise<boolean>;
  /**
   * Keeps the proof good until the transaction ends. Refuses: invalid_request when there is none. Throws LeaseError lease_lost.
   */
  assert(lease: Lease, transaction: Transaction): Promise<void>;
  /** Merges progress metadata. Refuses: invalid_metadata. Throws LeaseError lease_lost. */
  updateOwned(lease: Lease, patch: MetadataPatch, transaction?: Transaction): Promise<WorkItem>;

  /**
   * Ends it as done, with its `result`, any JSON value of at most 256 KiB. Refuses: invalid_request for another result. Throws LeaseError
   * lease_lost; cancelled when it is not to be completed after a request to cancel.
   */
  complete(
    lease: Lease,
    options?: { readonly unlessCancelled?: boolean | undefined; readonly result?: unknown },
    transaction?: Transaction,
  ): Promise<Settled>;
  /** Spends an attempt: again later, or set aside as `failed` at the last one, or where it is final. Throws LeaseError lease_lost. */
  fail(
    lease: Lease,
    error: unknown,
    options?: { readonly isFinal?: boolean | undefined },
    transaction?: Transaction,
  ): Promise<Settled>;
  /** Gives it back, due at once, its attempt unspent. Throws LeaseError lease_lost. */
  requeue(lease: Lease, transaction?: Transaction): Promise<Settled>;

  /** Asks for an item to end, without a proof. Refuses: not_found. */
  requestCancel(
    ref: WorkRef,
    transaction?: Transaction,
  ): Promise<{ readonly accepted: boolean; readonly state: WorkState }>;
  /** Ends all unfinished items of a session, of every kind and lane, at once and without a proof. Refuses: environment_not_found. */
  cancelSession(environmentId: string, sessionId: string, transaction?: Transaction): Promise<readonly WorkItem[]>;
}

/** What a runner asks of a store. */
export type RunnerStore<Transaction = QueueTransaction> = Pick<
  WorkStore<Transaction>,
  | 'claim'
  | 'expired'
  | 'reclaim'
  | 'onWork'
  | 'renew'
  | 'transaction'
  | 'assert'
  | 'enqueue'
  | 'complete'
  | 'fail'
  | 'requeue'
>;
