/**
 * SQLSTATE classes and codes that say "not now" and nothing about the request: connection, resources, operator
 * intervention, system errors, credentials and databases that are being changed; lock and serialisation failures; statement timeout;
 * a standby that has not been promoted.
 */
const TRANSIENT_SQLSTATE = /^(08|28|53|57|58|40|3D000|55P03|25006)/;
const TRANSIENT_ERRNO =
  /^(ECONN|EPIPE|EMFILE|ENFILE|ERR_STREAM_DESTROYED|ETIMEDOUT|ENOTFOUND|EAI_AGAIN|EHOSTUNREACH|ENETUNREACH|ENETDOWN)/;
/** What pg says without a code: pool and socket messages. */
const TRANSIENT_MESSAGE =
  /^(timeout exceeded when trying to connect|Connection terminated|Client has encountered a connection error|Query read timeout|Client was closed|Cannot use a pool after calling end|driver has already been destroyed|PGlite is closed)/;

/** The database could not be reached or gave up. Nothing is known about the call's effect: try again. */
export class DatabaseUnavailable extends Error {
  override readonly name = 'DatabaseUnavailable';
  readonly code = 'unavailable';
  constructor(cause: unknown) {
    super('the database did not answer, try again', { cause });
  }
}

/** True when the database could not be asked or gave up: the caller should try again, and no 4xx is due (contract §1). */
export function isUnavailable(error: unknown): boolean {
  if (error instanceof AggregateError) return error.errors.some(isUnavailable);
  if (!(error instanceof Error)) return false;
  const code = 'code' in error && typeof error.code === 'string' ? error.code : '';
  return TRANSIENT_SQLSTATE.test(code) || TRANSIENT_ERRNO.test(code) || TRANSIENT_MESSAGE.test(error.message);
}

const hasCode = (error: unknown, code: string): boolean =>
  error instanceof Error && 'code' in error && error.code === code;

export const isUniqueViolation = (error: unknown): boolean => hasCode(error, '23505');
export const isForeignKeyViolation = (error: unknown): boolean => hasCode(error, '23503');
/** What only a transaction may do was asked for without one. */
export const isNoTransaction = (error: unknown): boolean => hasCode(error, '25P01');
/** What the database said, also where our own pool has made it `DatabaseUnavailable`. */
const said = (error: unknown): unknown => (error instanceof DatabaseUnavailable ? error.cause : error);
/** The transaction was undone, and may be tried again. */
export const isDeadlock = (error: unknown): boolean => hasCode(said(error), '40P01');
/** Undone, too: somebody held what it waited for. */
export const isLockTimeout = (error: unknown): boolean => hasCode(said(error), '55P03');
