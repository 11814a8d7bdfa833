import assert from 'node:assert/strict';
import { bodyOf, type CallOf, statusOf } from './calls.ts';
import type { Cell, Check } from './found.ts';
import { type LockRow, micros, sameInstant, type Version } from './log.ts';
import { showsLock } from './timeline.ts';

type LockCall = CallOf<'acquire' | 'renew' | 'let go'>;

/** Every answer about a lock is explained by what the lock was at the time. */
export function checkLockAnswer({ timeline }: Check, call: LockCall): Cell {
  const list = timeline.locks.get(call.lock) ?? [];
  const seen = timeline.seenOf(call, list);
  const [status, body] = [statusOf(call), bodyOf(call)];
  const isLive = ({ row }: Version<LockRow>) => micros(row.expires_at) > call.notBefore;
  const isOver = ({ row }: Version<LockRow>) => micros(row.expires_at) <= call.notAfter;
  if (call.verb === 'acquire') {
    if (status === 409) {
      const told = body?.error?.details?.expires_at;
      const isHeld = seen.some(
        (version) => version.row.owner !== call.owner && sameInstant(told, version.row.expires_at) && isLive(version),
      );
      assert(isHeld, `call ${call.n} is locked out of ${call.lock} by another owner who holds it`);
      return 'acquire, held: 409';
    }
    const given = seen.find(({ row }) => row.owner === call.owner && showsLock(body, row));
    assert(status === 200 && given !== undefined, `call ${call.n} has got the lock ${call.lock}`);
    return `acquire, ${given.row.token === given.old?.token ? 'its own' : given.old === null ? 'no lock' : 'free'}: 200`;
  }
  const isLost = seen.length === 0 || seen.some((version) => version.row.token !== call.token || isOver(version));
  if (call.verb === 'renew') {
    const given = seen.some(({ row }) => row.token === call.token && showsLock(body, row));
    assert(
      status === 200 ? given : status === 409 && isLost,
      `call ${call.n} renews ${call.lock} as long as its token holds it, and no longer`,
    );
    return `renew: ${status}`;
  }
  assert.equal(status, 200, `call ${call.n} is answered`);
  assert(body?.released === true || isLost, `call ${call.n} lets ${call.lock} go while its token holds it`);
  return `let go: ${body?.released}`;
}
