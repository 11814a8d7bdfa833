import { type RawBuilder, sql } from 'kysely';

/**
 * The proof that an item is held, as the database recorded it: a frozen value, never a handle. It changes with every renewal,
 * and the one before is worth nothing then.
 */
export type Lease = {
  readonly seq: string;
  /** Who claimed it. */
  readonly workerId: string;
  /** Which of the item's hand-outs this is, from 1. */
  readonly handOut: number;
  /** RFC 3339 with microseconds, byte for byte. */
  readonly expiresAt: string;
  /**
   * When it was asked for, in milliseconds of this process's monotonic clock (`performance.now()`): the lease cannot end before this
   * and its length. In another process it means nothing.
   */
  readonly askedAtMs: number;
  /** What was asked for: it lasts so long at least. */
  readonly ttlSeconds: number;
};

export type LeaseErrorCode = 'lease_lost' | 'work_stalled' | 'cancelled';

/**
 * `lease_lost`: the proof is not (or no longer) the item's, nothing was written. `work_stalled`: the work made no progress and was given
 * up. `cancelled`: somebody asked for the item to end.
 */
export class LeaseError extends Error {
  override readonly name = 'LeaseError';
  readonly code: LeaseErrorCode;

  constructor(code: LeaseErrorCode, message: string, options: { cause?: unknown } = {}) {
    super(message, options);
    this.code = code;
  }
}

/** The row of that very hand-out: each claim has one of its own. */
const isTheirs = ({ seq, workerId, handOut }: Lease): RawBuilder<unknown> =>
  sql`w.seq = ${seq}::bigint and w.lane = 'process' and w.worker_id = ${workerId} and w.hand_out_count = ${handOut}`;

/** Only the holder's row, by all that the holder knows of it. */
export const isOwned = (lease: Lease): RawBuilder<unknown> =>
  sql`${isTheirs(lease)} and w.lease_expires_at = ${lease.expiresAt}::timestamptz`;

/** The same, by a holder that does not know whether its last renewal was done: the instant may be a later one. */
export const isHeld = (lease: Lease): RawBuilder<unknown> =>
  sql`${isTheirs(lease)} and w.lease_expires_at >= ${lease.expiresAt}::timestamptz`;

export const leaseLost = ({ seq, workerId }: Lease): LeaseError =>
  new LeaseError(
    'lease_lost',
    `${workerId} does not hold item ${seq} by this lease: it was renewed since, lapsed and was taken over, or ended`,
  );
