import { ControlError } from './call.ts';

/**
 * `timed_out`: no answer within `timeoutMs`. `denied`: it was not to be run. `retries_exhausted`: every worker that took it was lost.
 * `terminated`, `deleted`: the session ended. In all cases the call is closed: no later result is taken.
 */
export type RemoteToolErrorCode = 'timed_out' | 'denied' | 'retries_exhausted' | 'terminated' | 'deleted';

/** A call that has no result, and will have none. */
export class RemoteToolError extends Error {
  override readonly name = 'RemoteToolError';
  readonly code: RemoteToolErrorCode;

  constructor(code: RemoteToolErrorCode, message: string, options?: { cause: unknown }) {
    super(message, options);
    this.code = code;
  }
}

/** A refusal that says that the session has ended is the same error as when that is heard of otherwise. */
export function toRemoteError(error: unknown): unknown {
  if (!(error instanceof ControlError)) return error;
  if (error.details?.error_code === 'session_terminated') return ended('terminated', error);
  return error.status === 404 ? ended('deleted', error) : error;
}

export const ended = (how: 'terminated' | 'deleted', cause?: unknown): RemoteToolError =>
  new RemoteToolError(how, `the session was ${how}`, ...(cause === undefined ? [] : [{ cause }]));
