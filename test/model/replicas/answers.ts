import assert from 'node:assert/strict';
import { bodyOf, type Call, type CallOf, listOf, statusOf } from './calls.ts';
import { created } from './explain.ts';
import { type Cell, type Check, found, type Named } from './found.ts';
import { checkReleased, checkReported, checkResult } from './holder-answers.ts';
import { checkLockAnswer } from './lock-answers.ts';
import { sameInstant, type Version } from './log.ts';
import { passedOver } from './null-promise.ts';
import { agrees } from './timeline.ts';

/** Every answer is one that the contract allows, given some state that the row had between the call's beginning and its end. */
export function checkAnswers(check: Check): void {
  for (const call of check.timeline.calls) {
    const cell = call.outcome.kind === 'answered' ? checkAnswer(check, call) : undefined;
    if (cell !== undefined) check.met(cell);
  }
}

function checkAnswer(check: Check, call: Call): Cell {
  const status = statusOf(call);
  switch (call.verb) {
    case 'enqueue':
      return status === 409 ? checkTaken(check, call) : checkEnqueued(check, call);
    case 'poll':
      return checkPoll(check, call);
    case 'cancel':
      return checkCancelled(check, call);
    case 'release':
      return checkReleased(check, call);
    case 'report':
      return checkReported(check, call);
    case 'acquire':
    case 'renew':
    case 'let go':
      return checkLockAnswer(check, call);
    default:
      if (status === 404) return checkNotFound(check, call);
  }
  switch (call.verb) {
    case 'ack':
      return found(check, call, 200, ({ row }) => row.state !== 'queued' && agrees(bodyOf(call), row));
    case 'read':
      return found(check, call, 200, ({ row }) => agrees(bodyOf(call), row));
    case 'result':
      return checkResult(check, call);
    case 'patch':
      return found(check, call, 200, ({ row }) => row.metadata[call.key] === call.value && agrees(bodyOf(call), row));
    case 'beat':
      return checkBeat(check, call);
    case 'stop':
      if (status === 204) return undefined;
      return found(check, call, 409, ({ row }) => row.state === 'stopped' || (row.state === 'stopping' && !call.force));
  }
}

function checkBeat(check: Check, call: CallOf<'beat'>): Cell {
  const body = bodyOf(call);
  if (body?.lease_extended === true) return undefined; // a version of its own, and seen there
  const { expected, isRetry } = call;
  const item = check.timeline.items.get(check.timeline.seqOf.get(call.id) ?? -1) ?? [];
  const wasActive = item.some(({ row }) => row.id === call.id && row.state === 'active');
  const isNamed = (token: string | null) => (token === null ? expected === 'NO_HEARTBEAT' : token === expected);
  if (body?.lease_extended === false) {
    return found(
      check,
      call,
      200,
      (version) =>
        (version.row.state === 'stopping' || (version.row.state === 'stopped' && wasActive)) &&
        agrees(body, version.row),
    );
  }
  const told = body?.error?.details?.current_state;
  return found(check, call, 412, ({ row }) => {
    if (told?.state !== row.state || !sameInstant(told.last_heartbeat, row.last_heartbeat)) return false;
    const token = row.last_heartbeat === null ? null : wireText(row.last_heartbeat);
    const replaced = row.replaced_heartbeat === null ? null : wireText(row.replaced_heartbeat);
    switch (row.state) {
      case 'queued':
        return true;
      case 'starting':
        return expected !== 'NO_HEARTBEAT';
      case 'active':
        return !isNamed(token) && !(isRetry && isNamed(replaced));
      case 'stopped':
        return !wasActive;
      default:
        return false;
    }
  });
}

/** With all six places, as the wire has it. */
const wireText = (instant: string): string => {
  const [seconds, fraction = ''] = instant.replace(/\+00:00$/, '').split('.');
  return `${seconds}.${fraction.padEnd(6, '0')}Z`;
};

/** The id was never there, or may have been another's turn by then. */
function checkNotFound({ timeline }: Check, call: Named): Cell {
  const seen = timeline.seen(call, call.id);
  const other = seen.find(({ row }) => row.id !== call.id);
  assert(seen.length === 0 || other !== undefined, `call ${call.n} named an id that was there all the time`);
  return `${call.verb}, ${other?.row.state ?? 'no item'}: 404`;
}

function checkPoll({ timeline, holds }: Check, call: CallOf<'poll'>): Cell {
  assert.equal(statusOf(call), 200, `poll ${call.n} is answered`);
  const body = bodyOf(call);
  if (body !== null) {
    const isHis = ({ row, old }: Version) => row.worker_id === call.workerId && old?.worker_id !== call.workerId;
    assert(
      timeline.versions.some((version) => isHis(version) && agrees(body, version.row)),
      `the item of call ${call.n} was handed out to it`,
    );
    return undefined;
  }
  if (call.blockMs === undefined) {
    const offered = passedOver(timeline, holds, call);
    assert(offered === undefined, `poll ${call.n} is not answered null while item ${offered?.row.seq} is on offer`);
    return 'poll, nothing: null';
  }
  // Timers may be early by a part of a millisecond.
  assert(
    call.elapsedMs > call.blockMs - 2,
    `poll ${call.n} is answered null when its time is up, not after ${call.elapsedMs} ms`,
  );
  return 'poll that waits, nothing: null';
}

function checkCancelled({ timeline, edges }: Check, call: CallOf<'cancel'>): Cell {
  assert.equal(statusOf(call), 200);
  for (const { id } of listOf(bodyOf(call)) ?? []) {
    const isIt = (version: Version) => version.row.id === id && timeline.mayBe(call, version);
    assert(
      [...edges].some(([version, edge]) => edge === 'cancelled' && isIt(version)),
      `call ${call.n} cancelled ${id}`,
    );
  }
  return undefined;
}

/** A request id is known for one session. */
function checkTaken({ timeline }: Check, call: CallOf<'enqueue'>): Cell {
  const isTaken = call.requests.some(({ requestId, session }) =>
    timeline.calls.some(
      (other) =>
        other.verb === 'enqueue' &&
        other.begun < call.ended &&
        other.requests.some(
          (one) => one.requestId !== undefined && one.requestId === requestId && one.session !== session,
        ),
    ),
  );
  assert(isTaken, `call ${call.n} asks for another session's request`);
  return 'enqueue, taken: 409';
}

function checkEnqueued({ timeline, met }: Check, call: CallOf<'enqueue'>): Cell {
  const status = statusOf(call);
  assert(status === 200 || status === 201, `call ${call.n} is answered`);
  const answers = created(call);
  assert.equal(answers.length, call.requests.length, 'each request is answered');
  for (const [index, { id, session, isNew }] of answers.entries()) {
    const item = timeline.items.get(timeline.seqOf.get(id) ?? -1) ?? [];
    assert.equal(item[0]?.row.session_id, session, `call ${call.n} is answered with an item of its session`);
    if (isNew) {
      assert(item[0].row.id === id && timeline.mayBe(call, item[0]), `call ${call.n} made ${id}`);
      met('enqueue, no item: new');
      continue;
    }
    const isCovered = timeline
      .seen(call, id)
      .find(({ row }) => row.id === id && ['queued', 'starting', 'active'].includes(row.state));
    assert(isCovered !== undefined || call.requests[index]?.requestId !== undefined, `call ${call.n} was covered`);
    met(`enqueue, ${isCovered?.row.state ?? 'known'}: covered`);
  }
  return undefined;
}
