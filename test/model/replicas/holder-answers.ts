import assert from 'node:assert/strict';
import { bodyOf, type CallOf, statusOf } from './calls.ts';
import { type HolderCall, isOf, storedResult } from './explain-ends.ts';
import { type Cell, type Check, found } from './found.ts';
import { micros, type Row } from './log.ts';

/** Given back, ended, or refused: the same once more, by whom it was given back. */
export function checkReleased(check: Check, call: CallOf<'release'>): Cell {
  switch (statusOf(call)) {
    case 200:
      if (bodyOf(call)?.state === 'queued') return checkGoneBack(check, call, 'released');
      return found(check, call, 200, ({ row }) => row.state === 'stopped' && isOf(call, row));
    case 412:
      return checkLapsed(check, call);
    default:
      return checkForeign(check, call, 'released');
  }
}

/** The same again is answered the same, something else is a conflict. */
export function checkReported(check: Check, call: CallOf<'report'>): Cell {
  const stands = (row: Row) => row.outcome === call.status && row.result === storedResult(call);
  switch (statusOf(call)) {
    case 200: {
      const { status, state } = bodyOf(call) ?? {};
      assert.equal(status, call.status, `call ${call.n} is answered with what it said`);
      if (state === 'queued' && call.status === 'failed') return checkGoneBack(check, call, 'tried again');
      return found(check, call, 200, ({ row }) => row.state === 'stopped' && isOf(call, row) && stands(row));
    }
    case 409: {
      const failed = endOf(check, call);
      if (failed?.edge === 'tried again' && failed.isTheirs) {
        assert.equal(call.status, 'succeeded', `call ${call.n} says of its hand-out what was said`);
        return 'report, tried again: 409';
      }
      return found(check, call, 409, ({ row }) => row.state === 'stopped' && isOf(call, row) && !stands(row));
    }
    case 412:
      return checkLapsed(check, call);
    default:
      return checkForeign(check, call, 'tried again');
  }
}

/** What an item has for a result is what its outcome came with. */
export const checkResult = (check: Check, call: CallOf<'result'>): Cell =>
  found(check, call, 200, ({ row }) => JSON.stringify(bodyOf(call)?.result ?? null) === (row.result ?? 'null'));

/** How the hand-out that the call names ended, where another id followed: as far as that may have been before the call's end. */
function endOf({ timeline, edges }: Check, call: HolderCall) {
  const version = timeline.itemOf(call.id).find(({ old, row }) => old?.id === call.id && row.id !== call.id);
  if (!version?.old || !timeline.mayPrecede(call, version)) return undefined;
  const isBefore = version.committedBefore < call.begun;
  return { edge: edges.get(version), old: version.old, isTheirs: isOf(call, version.old), isBefore };
}

function checkGoneBack(check: Check, call: HolderCall, edge: 'released' | 'tried again'): Cell {
  const end = endOf(check, call);
  assert(
    end?.edge === edge && end.isTheirs,
    `call ${call.n} is told that its item is ${edge}, whose hand-out ${end === undefined ? 'goes on' : `was ${end.edge}`}`,
  );
  return end.isBefore ? `${call.verb}, ${edge}: 200 again` : `${call.verb}, ${end.old.state}: ${edge}`;
}

/** Under no live lease nothing is said. */
const checkLapsed = (check: Check, call: HolderCall): Cell =>
  found(
    check,
    call,
    412,
    ({ row }) =>
      isOf(call, row) &&
      bodyOf(call)?.error?.details?.current_state?.state === row.state &&
      row.state !== 'stopped' &&
      (row.lease_expires_at === null || micros(row.lease_expires_at) <= call.notAfter),
  );

/** The hand-out has ended in another way, or was another's. Whose answer was lost is answered the same, and never so. */
function checkForeign(check: Check, call: HolderCall, own: 'released' | 'tried again'): Cell {
  assert.equal(
    statusOf(call),
    404,
    `call ${call.n} is answered ${statusOf(call)}, and the contract says no such thing`,
  );
  const end = endOf(check, call);
  const isAnothers = check.timeline.seen(call, call.id).some(({ row }) => row.id === call.id && !isOf(call, row));
  assert(
    isAnothers || (end !== undefined && !(end.edge === own && end.isTheirs)),
    `call ${call.n} is refused as unknown, whose hand-out ${end === undefined ? 'goes on' : `it had itself ${own}`}`,
  );
  return `${call.verb}, ${end?.edge ?? "another's"}: 404`;
}
