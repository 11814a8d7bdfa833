import type { FastifyError, FastifyReply, FastifyRequest } from 'fastify';
import { DatabaseUnavailable } from '../db/failures.ts';
import { QueueError, type QueueErrorCode } from '../queue/errors.ts';

/** What is refused before the queue is asked. */
export type HttpErrorCode = 'unauthenticated' | 'forbidden' | 'request_too_large' | 'rate_limited' | 'internal';

export class HttpError extends Error {
  override readonly name = 'HttpError';
  readonly code: HttpErrorCode;
  constructor(code: HttpErrorCode, message: string) {
    super(message);
    this.code = code;
  }
}

type Kind = { readonly status: number; readonly type: string; readonly headers?: Readonly<Record<string, string>> };

/** The one table of statuses (contract §1). */
const KINDS = {
  invalid_request: { status: 400, type: 'invalid_request_error' },
  invalid_metadata: { status: 400, type: 'invalid_request_error' },
  environment_archived: { status: 400, type: 'invalid_request_error' },
  invalid_config_type_change: { status: 400, type: 'invalid_request_error' },
  session_terminated: { status: 400, type: 'invalid_request_error' }, // 409 would be tried again
  unauthenticated: { status: 401, type: 'authentication_error' },
  forbidden: { status: 403, type: 'permission_error' },
  not_found: { status: 404, type: 'not_found_error' },
  environment_not_found: { status: 404, type: 'not_found_error' },
  // Else the official clients send it twice more.
  conflict: { status: 409, type: 'conflict_error', headers: { 'x-should-retry': 'false' } },
  // Ours alone: whoever sent the same key again is to come back for the answer.
  idempotency_in_progress: {
    status: 409,
    type: 'conflict_error',
    headers: { 'x-should-retry': 'false', 'retry-after': '1' },
  },
  precondition_failed: { status: 412, type: 'invalid_request_error' },
  request_too_large: { status: 413, type: 'request_too_large' },
  rate_limited: { status: 429, type: 'rate_limit_error', headers: { 'retry-after': '1' } },
  internal: { status: 500, type: 'api_error' },
  unavailable: { status: 503, type: 'overloaded_error', headers: { 'retry-after': '1' } },
} as const satisfies Record<QueueErrorCode | HttpErrorCode, Kind>;

/** Clients tell these by `details.error_code`: the official ones, the last two ours. */
const CODES_TOLD: ReadonlySet<QueueErrorCode> = new Set([
  'environment_not_found',
  'environment_archived',
  'invalid_config_type_change',
  'session_terminated',
  'idempotency_in_progress',
]);

export const statusOf = (code: QueueErrorCode): number => KINDS[code].status;

export const ERROR_STATUSES = [...new Set(Object.values(KINDS).map((kind) => kind.status))];

export type Answer = { status: number; headers: Record<string, string>; body: string };

/**
 * The envelope and its status, for replies and for what is written to a bare socket. Where an item went is an operator's to
 * know: a worker that lost it is told no more than that.
 */
export function toAnswer(error: unknown, requestId: string, isOperator = false): Answer {
  const { code, message, ...refusal } = toRefusal(error);
  const details = code === 'not_found' && !isOperator ? undefined : refusal.details;
  const kind: Kind = KINDS[code];
  return {
    status: kind.status,
    headers: {
      'content-type': 'application/json; charset=utf-8',
      'cache-control': 'no-store',
      'request-id': requestId,
      ...kind.headers,
    },
    body: JSON.stringify({
      type: 'error',
      error: { type: kind.type, message, ...(details === undefined ? {} : { details }) },
      request_id: requestId,
    }),
  };
}

declare module 'fastify' {
  interface FastifyContextConfig {
    /** For a 429 and a 503 of this route, where another time than a second is right. */
    retryAfterSeconds?: number;
  }
}

export function sendError(error: unknown, request: FastifyRequest, reply: FastifyReply): FastifyReply {
  const answer = toAnswer(error, request.id, request.caller?.kind === 'api');
  const { retryAfterSeconds } = request.routeOptions.config;
  if (retryAfterSeconds !== undefined && 'retry-after' in answer.headers) {
    answer.headers['retry-after'] = `${retryAfterSeconds}`;
  }
  if (answer.status >= 500) request.log[answer.status === 503 ? 'warn' : 'error']({ err: error }, 'request failed');
  // The body is a string already: past the route's serialiser, whose schemas are those of success.
  return reply.code(answer.status).headers(answer.headers).serializer(String).send(answer.body);
}

type Refusal = { code: QueueErrorCode | HttpErrorCode; message: string; details?: Readonly<Record<string, unknown>> };

function toRefusal(error: unknown): Refusal {
  if (error instanceof QueueError) {
    const details = CODES_TOLD.has(error.code) ? { error_code: error.code } : error.details;
    return { code: error.code, message: error.message, ...(details === undefined ? {} : { details }) };
  }
  if (error instanceof DatabaseUnavailable) return { code: error.code, message: error.message };
  if (error instanceof HttpError) return { code: error.code, message: error.message };
  return fastifyRefusal(error) ?? { code: 'internal', message: 'internal error' };
}

/** Fastify's own refusals, by their codes. Whatever else it calls a client error is a 400. */
function fastifyRefusal(error: unknown): Refusal | undefined {
  if (!isFastifyError(error)) return undefined;
  switch (error.code) {
    case 'FST_ERR_CTP_BODY_TOO_LARGE':
      return { code: 'request_too_large', message: 'the request body is larger than this route takes' };
    case 'FST_ERR_BAD_URL':
    case 'FST_ERR_MAX_PARAM_LENGTH':
    case 'FST_ERR_ASYNC_CONSTRAINT':
      return { code: 'not_found', message: 'no such route' };
    case 'FST_ERR_CTP_INVALID_CONTENT_LENGTH':
      return { code: 'invalid_request', message: 'the body is not as long as content-length says' };
    default: {
      const status = error.statusCode ?? 500;
      return status >= 400 && status < 500 ? { code: 'invalid_request', message: error.message } : undefined;
    }
  }
}

const isFastifyError = (error: unknown): error is FastifyError =>
  error instanceof Error && 'code' in error && typeof error.code === 'string' && error.code.startsWith('FST_');
