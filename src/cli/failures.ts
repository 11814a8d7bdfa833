import { ControlError } from '../client/call.ts';
import { ConfigError } from '../config.ts';
import { DatabaseUnavailable } from '../db/failures.ts';
import { FailedError, UsageError } from './command.ts';
import { visible } from './table.ts';

export type Failure = { readonly exitCode: 1 | 2 | 3; readonly lines: readonly string[] };

/** An answer of what stands in front of the server, which it did not reach. */
const FRONT_STATUSES = [502, 503, 504];

/**
 * What is said of an error, and with which exit code: 1 refused or failed, 2 wrong use, 3 server out of reach. Undefined for
 * what nobody foresaw: that is a fault of ours, and its stack says more.
 */
export function failureOf(error: unknown): Failure | undefined {
  if (error instanceof UsageError) return { exitCode: 2, lines: error.problems };
  if (error instanceof FailedError) return { exitCode: 1, lines: [error.message] };
  if (error instanceof ConfigError) return { exitCode: 1, lines: error.problems };
  if (error instanceof DatabaseUnavailable) return { exitCode: 1, lines: [`DATABASE_URL: ${reasonOf(error.cause)}`] };
  if (!(error instanceof ControlError)) return undefined;
  return { exitCode: isOutOfReach(error) ? 3 : 1, lines: [sayingOf(error)] };
}

export function isOutOfReach({ status, type }: ControlError): boolean {
  return status === undefined || (type === 'unknown_error' && FRONT_STATUSES.includes(status));
}

/** What the server said, or why it could not: for a person, in one line. */
export function sayingOf(error: ControlError): string {
  if (error.status === undefined) return `${error.message}: ${reasonOf(error.cause)}`;
  const request = error.requestId === undefined ? '' : `, ${error.requestId}`;
  return `${visible(error.message)} (${error.status} ${error.type}${request})`;
}

/** The innermost cause: what fetch and pg say themselves is that something failed. */
export function reasonOf(error: unknown): string {
  if (error instanceof AggregateError && error.errors.length > 0) return reasonOf(error.errors[0]);
  if (!(error instanceof Error)) return String(error);
  if (error.cause !== undefined) return reasonOf(error.cause);
  return visible(error.message || ('code' in error ? String(error.code) : error.name));
}
