import type { EnqueueRequest } from './enqueue.ts';
import { QueueError } from './errors.ts';
import { WORK_KINDS } from './items.ts';
import {
  checkInteger,
  checkMetadata,
  checkText,
  findUnstorable,
  isDeeper,
  isInstant,
  isRecord,
  LIMITS,
} from './limits.ts';

/** What a header can carry: poll gives the trace context back in headers (contract §9). */
const HEADER_TEXT = /^[\x20-\x7e]{1,512}$/;

/**
 * Whatever of a request could not be stored or would be stored as something else. `where` names it in its call.
 * Refuses: invalid_request, invalid_metadata.
 */
export function checkEnqueue(request: EnqueueRequest, where = ''): void {
  const refuse = (problem: string): never => {
    throw new QueueError('invalid_request', `${where}${problem}`);
  };
  checkText(`${where}environmentId`, request.environmentId, LIMITS.idCharacters);
  checkText(`${where}sessionId`, request.sessionId, LIMITS.sessionIdCharacters);
  if (request.kind !== undefined && !WORK_KINDS.includes(request.kind)) {
    refuse(`kind must be one of ${WORK_KINDS.join(', ')}`);
  }
  const { notBefore, priority, maxHandOuts, maxAttempts, requestId, followUp } = request;
  if (priority !== undefined) checkInteger(`${where}priority`, priority, -LIMITS.priority, LIMITS.priority);
  if (notBefore !== undefined && !isInstant(notBefore)) refuse('notBefore must be an RFC 3339 instant with an offset');
  if (maxHandOuts !== undefined) checkInteger(`${where}maxHandOuts`, maxHandOuts, 1, LIMITS.handOuts);
  if (maxAttempts !== undefined) checkInteger(`${where}maxAttempts`, maxAttempts, 1, LIMITS.attempts);
  if (requestId !== undefined) checkText(`${where}requestId`, requestId, LIMITS.requestIdCharacters);
  if (followUp !== undefined && typeof followUp !== 'boolean') refuse('followUp must be true or false');
  if (request.input !== undefined) checkInput(`${where}input`, request.input);
  for (const [name, value] of Object.entries(request.traceContext ?? {})) {
    if (value !== undefined && !HEADER_TEXT.test(value)) {
      refuse(`traceContext.${name} must be 1 to 512 printable ASCII characters`);
    }
  }
  checkMetadata(request.metadata ?? {}, where);
}

/** A JSON value of the caller's that is stored as text beside an item. Refuses: invalid_request. */
export function checkInput(field: string, input: unknown): void {
  const bytes = Buffer.byteLength(jsonOf(field, input));
  if (bytes > LIMITS.inputBytes) {
    throw new QueueError(
      'invalid_request',
      `${field} must be at most ${LIMITS.inputBytes} bytes of JSON, not ${bytes}`,
    );
  }
  const unstorable = findUnstorable(input, '');
  if (unstorable !== undefined) {
    throw new QueueError(
      'invalid_request',
      `${field} must not hold NUL or unpaired surrogates (${unstorable || 'itself'})`,
    );
  }
}

/** A value as it is stored. Refuses: invalid_request for what would be stored as something else, or nests too deep to be written. */
export function jsonOf(field: string, value: unknown): string {
  if (isDeeper(value, LIMITS.inputLevels)) {
    throw new QueueError('invalid_request', `${field} must nest at most ${LIMITS.inputLevels} levels deep`);
  }
  let text: string | undefined;
  try {
    text = JSON.stringify(value);
  } catch {} // a bigint
  if (text === undefined) throw new QueueError('invalid_request', `${field} must be a JSON value`);
  if (text.includes('null') && hasNumberBeyondJson(value)) {
    throw new QueueError('invalid_request', `${field} must be a JSON value: its numbers are finite`);
  }
  return text;
}

/** NaN and the infinities are written as null; `1e999` in a body is one of them. Not recursive: JSON may nest as it likes. */
function hasNumberBeyondJson(root: unknown): boolean {
  const left = [root];
  while (left.length > 0) {
    const next = left.pop();
    if (typeof next === 'number' && !Number.isFinite(next)) return true;
    if (isRecord(next)) for (const inner of Object.values(next)) left.push(inner);
  }
  return false;
}
