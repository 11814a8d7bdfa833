import { type Check, ok, warn } from './check.ts';

/** What network time keeps easily; a Date header alone is half a second off. */
const DIFFERENCE_MS_MAX = 2_000;

export type ClockOffset = {
  /** How far it is ahead of ours, as if it had been read in the middle of the way. */
  readonly aheadMs: number;
  /** How far off that may be: half the way there and back. */
  readonly unsureMs: number;
};

/** By what it said, between two instants of ours. */
export const offsetOf = (saidMs: number, startedAt: number, endedAt: number): ClockOffset => ({
  aheadMs: saidMs - (startedAt + endedAt) / 2,
  unsureMs: (endedAt - startedAt) / 2,
});

/**
 * Leases are timed by the database alone: who is off only trusts them for shorter, or misreads what is logged. What a slow answer explains is
 * no difference.
 */
export function clockCheck(name: string, { aheadMs, unsureMs }: ClockOffset): Check {
  const seconds = (Math.abs(aheadMs) / 1_000).toFixed(1);
  if (Math.abs(aheadMs) - unsureMs <= DIFFERENCE_MS_MAX)
    return ok(name, `within ${DIFFERENCE_MS_MAX / 1_000} s of ours`);
  const message = `${seconds} s ${aheadMs > 0 ? 'ahead of' : 'behind'} ours`;
  return warn(name, message, 'set both by network time: expiries and logs are read wrongly');
}
