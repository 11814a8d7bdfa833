import { bodyOf, type Call, type CallOf, statusOf } from './calls.ts';
import type { Edge } from './edges.ts';
import { micros, type Row, type Version } from './log.ts';
import { MAX_ATTEMPTS } from './replica.ts';

export type HolderCall = CallOf<'release' | 'report'>;

/** Whether the call is about the hand-out that the row has. */
export const isOf = ({ id, tokenHash }: HolderCall, row: Row): boolean =>
  id === row.id && (tokenHash === null || tokenHash === row.sessions_token_hash);

export const storedResult = ({ result }: CallOf<'report'>): string | null =>
  result === undefined ? null : JSON.stringify(result);

/** Whether the call did what became of the row there: a holder's giving back, or what it says. */
export function didEnd(call: Call, edge: Edge, version: Version): boolean {
  const { old } = version;
  if (old === null || (call.verb !== 'release' && call.verb !== 'report') || !isOf(call, old)) return false;
  if (edge === 'concluded') return call.verb === 'report' && didConclude(call, version);
  if (!mayHaveTold(call, 'queued')) return false;
  return call.verb === 'release'
    ? edge === 'released' && waits(version, call.delayMs, call.delayMs)
    : edge === 'tried again' && didFail(call, version);
}

/** A release of what winds down ends it; why it was to end stays the reason. */
export const didEndWindingDown = (call: CallOf<'release'>, { since, old, row }: Version, edge: Edge): boolean =>
  edge === 'stopped' &&
  old?.state === 'stopping' &&
  isOf(call, old) &&
  old.lease_expires_at !== null &&
  micros(old.lease_expires_at) > since &&
  row.stop_reason === old.stop_reason;

export const mayHaveTold = (call: Call, state: 'queued' | 'stopped'): boolean =>
  call.outcome.kind === 'unknown' || (statusOf(call) === 200 && bodyOf(call)?.state === state);

function didConclude(call: CallOf<'report'>, { old, row }: Version): boolean {
  if (old === null || !mayHaveTold(call, 'stopped')) return false;
  const isFailed = call.status === 'failed';
  const reason = isFailed ? 'failed' : call.tokenHash === null ? 'operator' : 'worker';
  return (
    row.outcome === call.status &&
    row.result === storedResult(call) &&
    row.last_error === (isFailed ? (call.error ?? null) : old.last_error) &&
    row.stop_reason === (old.stop_reason ?? reason) &&
    (!isFailed || call.isFinal || old.state === 'stopping' || old.attempt >= (old.max_attempts ?? MAX_ATTEMPTS))
  );
}

function didFail({ status, isFinal, error }: CallOf<'report'>, version: Version): boolean {
  const backoffMs = 1_000 * 2 ** ((version.old?.attempt ?? 1) - 1);
  return (
    status === 'failed' &&
    !isFinal &&
    version.row.last_error === (error ?? null) &&
    waits(version, backoffMs / 2, backoffMs)
  );
}

/** Not handed out before so long after the call; 0: at once. */
function waits({ since, at, row }: Version, leastMs: number, mostMs: number): boolean {
  if (mostMs === 0) return row.not_before === null;
  const until = micros(row.not_before ?? '1970-01-01T00:00:00Z');
  return until >= since + leastMs * 1_000 && until <= at + mostMs * 1_000;
}
