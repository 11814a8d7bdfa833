import assert from 'node:assert/strict';
import { bodyOf, type Call, isCall } from './calls.ts';
import { type LockRow, micros, type Version } from './log.ts';
import { unmatched } from './matching.ts';
import type { Timeline } from './timeline.ts';

type Change = 'taken' | 'extended' | 'let go' | 'left as it was' | 'expired';

/** Whatever became of a lock was allowed, and somebody's doing. */
export function checkLocks({ locks, calls, mayBe }: Timeline, met: (cell: string) => void): void {
  for (const [name, list] of locks) {
    let newest = 0;
    const letGo: Version<LockRow>[] = [];
    for (const version of list) {
      const change = changeOf(version);
      met(`lock ${change}`);
      checkChange(change, version, newest);
      newest = Math.max(newest, version.row.token);
      if (change === 'let go') letGo.push(version);
      assert(
        change === 'expired' || calls.some((call) => mayBe(call, version) && did(call, change, version)),
        `somebody asked for version ${version.n} of lock ${name}: ${change} by ${version.by}`,
      );
    }
    const fits = (version: Version<LockRow>, call: Call) => mayBe(call, version) && did(call, 'let go', version);
    const letters = calls.filter(isCall('let go'));
    const successes = letters.filter((call) => bodyOf(call)?.released === true && call.lock === name);
    const perhaps = letters.filter(({ outcome }) => outcome.kind === 'unknown');
    const unasked = unmatched(letGo, [...successes, ...perhaps], fits);
    assert(unasked === undefined, `version ${unasked?.n} of lock ${name} was let go by a call of its own`);
    const undone = unmatched(successes, letGo, (call, version) => fits(version, call));
    assert(undone === undefined, `call ${undone?.n} let lock ${name} go, and that is seen in its row`);
  }
}

function changeOf({ by, old, row, n }: Version<LockRow>): Change {
  if (by === 'test') return 'expired';
  if (old === null || row.token !== old.token) return 'taken';
  assert.deepEqual([row.owner, row.acquired_at], [old.owner, old.acquired_at], `version ${n}: a token is one holder's`);
  if (row.expires_at === old.expires_at) return 'left as it was';
  return micros(row.expires_at) > micros(old.expires_at) ? 'extended' : 'let go';
}

function checkChange(change: Change, { n, since, at, old, row }: Version<LockRow>, newest: number): void {
  const of = `version ${n} of lock ${row.name}`;
  const until = micros(row.expires_at);
  switch (change) {
    case 'taken':
      assert(
        old === null || micros(old.expires_at) <= micros(row.acquired_at),
        `${of}: ${row.owner} takes it while ${old?.owner} holds it, until ${old?.expires_at}`,
      );
      assert(row.token > newest, `${of}: tokens only grow, ${row.token} came after ${newest}`);
      return;
    case 'extended':
    case 'let go':
      assert(
        old !== null && micros(old.expires_at) > since,
        `${of}: what has expired at ${old?.expires_at} is ${change}`,
      );
      assert(change === 'extended' || (until >= since && until <= at), `${of}: it is let go now`);
      return;
    default:
  }
}

function did(call: Call, change: Change, { row, old }: Version<LockRow>): boolean {
  if (!('lock' in call) || call.lock !== row.name) return false;
  const isUnknown = call.outcome.kind === 'unknown';
  const body = bodyOf(call);
  switch (change) {
    case 'taken':
      return call.verb === 'acquire' && call.owner === row.owner && (isUnknown || body?.token === row.token);
    case 'extended':
      if (!isUnknown && body?.token !== row.token) return false;
      return (
        (call.verb === 'acquire' && call.owner === row.owner) || (call.verb === 'renew' && call.token === row.token)
      );
    case 'let go':
      return call.verb === 'let go' && call.token === old?.token && (isUnknown || body?.released === true);
    default:
      return call.verb !== 'let go';
  }
}
