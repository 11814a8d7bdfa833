import { type RawBuilder, sql } from 'kysely';
import { rfc3339 } from '../db/sql.ts';
import { QueueError } from '../queue/errors.ts';
import { checkInteger, checkText, LIMITS } from '../queue/limits.ts';

export type Lock = {
  readonly environmentId: string;
  readonly name: string;
  readonly owner: string;
  /** The fencing token: whoever holds the lock later has a higher one. */
  readonly token: number;
  readonly acquiredAt: string;
  readonly expiresAt: string;
  /** From when the database answered to the expiry, for clocks that do not agree with it. */
  readonly expiresInMs: number;
};

export type LockRef = {
  readonly environmentId: string;
  /** 1 to 256 characters, neither `.` nor `..`. */
  readonly name: string;
};

export type LockProof = LockRef & { readonly token: number };

/** Refuses: invalid_request. */
export function checkLock({ environmentId, name }: LockRef): void {
  checkText('environmentId', environmentId, LIMITS.idCharacters);
  checkText('name', name, LIMITS.lockNameCharacters);
  // In a path they stand for other places, however they are encoded.
  if (name === '.' || name === '..') throw new QueueError('invalid_request', 'name must be neither . nor ..');
}

/** Refuses: invalid_request. */
export function checkProof(proof: LockProof): void {
  checkLock(proof);
  checkInteger('token', proof.token, 1, Number.MAX_SAFE_INTEGER);
}

/** Refuses: invalid_request. */
export const checkLockTtl = (ttlSeconds: number): void => checkInteger('ttlSeconds', ttlSeconds, 1, LIMITS.lockSeconds);

export const LOCK_COLUMNS = sql`l.name, l.owner, l.token, l.acquired_at, l.expires_at`;

/** Of a lock whose columns `source` has. */
export const lockFields = (source: RawBuilder<unknown>): RawBuilder<LockRow> => sql<LockRow>`
      ${source}.name, ${source}.owner, ${source}.token::text as token,
      ${rfc3339(sql`${source}.acquired_at`)} as "acquiredAt", ${rfc3339(sql`${source}.expires_at`)} as "expiresAt",
      greatest(1, ceil(extract(epoch from ${source}.expires_at - clock_timestamp()) * 1000))::integer as "expiresInMs"`;

export type LockRow = Omit<Lock, 'environmentId' | 'token'> & { readonly token: string };

export const toLock = (environmentId: string, { token, ...row }: LockRow): Lock => ({
  ...{ environmentId, name: row.name, owner: row.owner, token: Number(token) },
  ...{ acquiredAt: row.acquiredAt, expiresAt: row.expiresAt, expiresInMs: row.expiresInMs },
});
