/** What can be refused, spelled once. The HTTP status of each stands in `http/errors.ts`. */
export type QueueErrorCode =
  | 'invalid_request'
  | 'invalid_metadata'
  | 'not_found'
  | 'environment_not_found'
  | 'environment_archived'
  | 'invalid_config_type_change'
  | 'session_terminated'
  | 'conflict'
  | 'idempotency_in_progress'
  | 'precondition_failed'
  | 'unavailable';

/**
 * A refusal or a failure of the queue. `message` is fit for a caller to read: it never holds internal text.
 * `unavailable`: the queue gave up, nothing was written, try again. A database that does not answer is DatabaseUnavailable, with the
 * same code.
 */
export class QueueError extends Error {
  override readonly name = 'QueueError';
  readonly code: QueueErrorCode;
  readonly details: Readonly<Record<string, unknown>> | undefined;

  constructor(
    code: QueueErrorCode,
    message: string,
    options: { details?: Record<string, unknown>; cause?: unknown } = {},
  ) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.code = code;
    this.details = options.details;
  }
}

/** The one answer of a set of one, thrown when it is a refusal. */
export function only<T>(outcomes: readonly (T | QueueError)[]): T {
  const [outcome] = outcomes;
  if (outcomes.length !== 1 || outcome === undefined) throw new Error(`expected one outcome, got ${outcomes.length}`);
  if (outcome instanceof QueueError) throw outcome;
  return outcome;
}

export const environmentNotFound = (id: string): QueueError =>
  new QueueError('environment_not_found', `environment ${id} was not found`);
