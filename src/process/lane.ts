import { type CallerTransaction, type Database, type QueueTransaction, within } from '../db/connect.ts';
import { cancelSession } from '../queue/cancel-session.ts';
import { QueueError } from '../queue/errors.ts';
import { kindTopic } from '../queue/items.ts';
import { checkInteger, checkText, LIMITS } from '../queue/limits.ts';
import type { QueueSettings } from '../queue/settings.ts';
import { assertOwned } from './assert.ts';
import { expired, nextEligible } from './candidates.ts';
import {
  checkCandidate,
  checkFlag,
  checkKind,
  checkKinds,
  checkLease,
  checkOptions,
  checkTransaction,
  checkTtl,
} from './checks.ts';
import { type ClaimSettings, claimCandidate, claimNext, reclaim, type Taken } from './claim.ts';
import { cancelRequested, type Extended, extend } from './extend.ts';
import { type Lease, LeaseError } from './lease.ts';
import { requestCancel } from './request-cancel.ts';
import { complete, fail, requeue } from './settle.ts';
import type { ClaimOptions, WorkStore } from './store.ts';
import { updateOwned } from './update-owned.ts';

export type ProcessLaneOptions = {
  readonly database: Database;
  readonly settings: QueueSettings;
  /** Who claims, where a call does not say. */
  readonly workerId: string;
  /** There may be work for these topics, here and elsewhere. */
  readonly wake: (topics: readonly string[]) => void;
  readonly listen: (topics: readonly string[], listener: () => void) => () => void;
};

export type ProcessLane = Omit<WorkStore<CallerTransaction>, 'enqueue' | 'transaction'> & {
  /** Gives a transaction of Kysely's: with tables of the caller's own, whatever they are. */
  transaction<Result>(run: (transaction: QueueTransaction) => Promise<Result>): Promise<Result>;
  /** As `renew`, and throws what that tells: LeaseError lease_lost, or DatabaseUnavailable. */
  extend(lease: Lease, ttlSeconds: number): Promise<Extended>;
};

/** The verbs of the process lane: checks what a caller gave, runs the statement, wakes whom its outcome is for. */
export function createProcessLane({ database, settings, workerId, wake, listen }: ProcessLaneOptions): ProcessLane {
  const place = (transaction: CallerTransaction | undefined) => {
    if (transaction === undefined) return database;
    checkTransaction(transaction);
    return within(database, transaction);
  };

  /** In a transaction the notification is part of it. */
  const told = <Outcome extends { readonly topics: readonly string[] }>(
    { topics, ...outcome }: Outcome,
    transaction: CallerTransaction | undefined,
  ) => {
    if (transaction === undefined) wake(topics);
    return outcome;
  };

  const take = async (
    options: ClaimOptions | undefined,
    run: (options: { ttlSeconds: number; workerId: string }, settings: ClaimSettings) => Promise<Taken>,
  ) => {
    // A caller without types may leave them out.
    const claimant = { ttlSeconds: options?.ttlSeconds ?? Number.NaN, workerId: options?.workerId ?? workerId };
    checkTtl(claimant.ttlSeconds);
    checkText('workerId', claimant.workerId, LIMITS.workerIdCharacters);
    return told(await run(claimant, settings), undefined).claimed;
  };

  const checked = async (lease: Lease, ttlSeconds: number, options?: { isRetry?: boolean }): Promise<Extended> => {
    checkLease(lease);
    checkTtl(ttlSeconds);
    return extend(database, lease, ttlSeconds, options);
  };

  return {
    // Only `within` has others, and a lane is never made of that.
    transaction: (run) => database.transaction((transaction) => run(transaction as QueueTransaction)),
    onWork: (kinds, listener) => listen(kinds.map(kindTopic), listener),

    async claim(what, options) {
      if (typeof what !== 'string') {
        checkCandidate(what);
        return take(options, (...by) => claimCandidate(database, what, ...by));
      }
      checkKind(what);
      return take(options, (...by) => claimNext(database, what, ...by));
    },

    async nextEligible(kind) {
      checkKind(kind);
      return nextEligible(database, kind, settings);
    },

    async expired(kinds, limit = LIMITS.pageItems) {
      checkKinds(kinds);
      checkInteger('limit', limit, 1, LIMITS.pageItems);
      return expired(database, kinds, limit);
    },

    async reclaim(lease, options) {
      checkLease(lease);
      return take(options, (...by) => reclaim(database, lease, ...by));
    },

    extend: (lease, ttlSeconds) => checked(lease, ttlSeconds),

    async renew(lease, ttlSeconds, options) {
      try {
        return { outcome: 'renewed', ...(await checked(lease, ttlSeconds, options)) };
      } catch (error) {
        if (error instanceof QueueError) throw error;
        return error instanceof LeaseError ? { outcome: 'lost', error } : { outcome: 'deferred', error };
      }
    },

    async cancelRequested(lease) {
      checkLease(lease);
      return cancelRequested(database, lease);
    },

    async assert(lease, transaction) {
      checkLease(lease);
      checkTransaction(transaction);
      await assertOwned(database, lease, transaction);
    },

    async updateOwned(lease, patch, transaction) {
      checkLease(lease);
      return updateOwned(place(transaction), lease, patch);
    },

    async complete(lease, options = {}, transaction = undefined) {
      checkLease(lease);
      checkOptions(options);
      const { unlessCancelled = false, result } = options;
      checkFlag('unlessCancelled', unlessCancelled);
      return told(await complete(place(transaction), lease, { unlessCancelled, result }), transaction);
    },

    async fail(lease, error, options = {}, transaction = undefined) {
      checkLease(lease);
      checkOptions(options);
      const { isFinal = false } = options;
      checkFlag('isFinal', isFinal);
      const { maxAttempts } = settings;
      return told(await fail(place(transaction), lease, error, { maxAttempts, isFinal }), transaction);
    },

    async requeue(lease, transaction) {
      checkLease(lease);
      return told(await requeue(place(transaction), lease), transaction);
    },

    async requestCancel(ref, transaction) {
      return told(await requestCancel(place(transaction), ref), transaction);
    },

    cancelSession: (environmentId, sessionId, transaction) =>
      cancelSession(place(transaction), environmentId, sessionId),
  };
}
