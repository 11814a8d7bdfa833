import { type Check, ok, warn } from './check.ts';

/** What network time keeps easily; a Date header alone is half a second off. */
const DIFFERENCE_MS_MAX = 2_000;

/** Leases are timed by the database alone: who is off only trusts them for shorter, or misreads what is logged. */
export function clockCheck(name: string, aheadMs: number): Check {
  const seconds = (Math.abs(aheadMs) / 1_000).toFixed(1);
  if (Math.abs(aheadMs) <= DIFFERENCE_MS_MAX) return ok(name, `within ${DIFFERENCE_MS_MAX / 1_000} s of ours`);
  const message = `${seconds} s ${aheadMs > 0 ? 'ahead of' : 'behind'} ours`;
  return warn(name, message, 'set both by network time: expiries and logs are read wrongly');
}
