import type { CallerTransaction } from '../db/connect.ts';
import { QueueError } from '../queue/errors.ts';
import { WORK_KINDS } from '../queue/items.ts';
import { checkInteger, checkText, isInstant, isRecord, LIMITS } from '../queue/limits.ts';

/** What a caller without types may hand in: each refuses with invalid_request, naming the argument and the rule. */
function refuse(problem: string): never {
  throw new QueueError('invalid_request', problem);
}

const POSTGRES_INTEGER_MAX = 2 ** 31 - 1;
/** A `bigint` of ours. */
const isSeq = (value: unknown): boolean => typeof value === 'string' && /^\d{1,18}$/.test(value);

export function checkKind(kind: unknown): void {
  if (!WORK_KINDS.some((known) => known === kind)) refuse(`kind must be one of ${WORK_KINDS.join(', ')}`);
}

export function checkKinds(kinds: unknown): void {
  if (!Array.isArray(kinds)) refuse('kinds must be a list of kinds');
  kinds.forEach(checkKind);
}

export function checkFlag(field: string, value: unknown): void {
  if (typeof value !== 'boolean') refuse(`${field} must be true or false`);
}

export const checkTtl = (ttlSeconds: unknown): void =>
  checkInteger('ttlSeconds', ttlSeconds, 1, LIMITS.leaseTtlSeconds);

export function checkLease(lease: unknown): void {
  if (!isRecord(lease)) refuse('lease must be the one that a claim or a renewal answered');
  if (!isSeq(lease.seq)) refuse('lease.seq must be the digits that the claim answered');
  checkText('lease.workerId', lease.workerId, LIMITS.workerIdCharacters);
  checkInteger('lease.handOut', lease.handOut, 1, POSTGRES_INTEGER_MAX);
  const { expiresAt } = lease;
  if (typeof expiresAt !== 'string' || !isInstant(expiresAt)) {
    refuse('lease.expiresAt must be the instant that the claim answered');
  }
}

export function checkCandidate(candidate: unknown): void {
  if (!isRecord(candidate)) refuse('what is claimed must be a kind, or a candidate that nextEligible answered');
  checkInteger('candidate.handOut', candidate.handOut, 0, POSTGRES_INTEGER_MAX);
  if (!isSeq(candidate.seq)) refuse('candidate.seq must be the digits that were read');
}

const isTransaction = (value: unknown): value is CallerTransaction =>
  isRecord(value) && (typeof value.query === 'function' || typeof value.executeQuery === 'function');

export function checkTransaction(transaction: unknown): void {
  if (!isTransaction(transaction)) refuse("transaction must be Kysely's, or have pg's query(text, values)");
}

/** A transaction in their place would be passed over, and the verb commit beside it. */
export function checkOptions(options: unknown): void {
  if (!isRecord(options) || isTransaction(options)) refuse('options must be an object: a transaction comes after them');
}
