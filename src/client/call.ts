export type ClientOptions = {
  /** Where the server is, without a path of ours. */
  readonly baseUrl: string;
  readonly apiKey: string;
  readonly fetch?: typeof fetch;
  /** Tries after the first, default 4. */
  readonly retriesMax?: number;
  /** For one try; default 30 s. */
  readonly answerMsMax?: number;
  /** How it waits between tries; rejects when the signal aborts. */
  readonly sleep?: (ms: number, signal: AbortSignal | undefined) => Promise<void>;
};

export type CallOptions = {
  /** For a change: 1 to 255 printable ASCII characters, kept over restarts of your own. Default: a random one for each call. */
  readonly idempotencyKey?: string;
  readonly signal?: AbortSignal;
};

type Told = Pick<ControlError, 'type'> & Partial<Pick<ControlError, 'status' | 'details' | 'requestId' | 'cause'>>;

/** A refusal of the server, or that it could not be reached. */
export class ControlError extends Error {
  override readonly name = 'ControlError';
  /** Undefined when no answer came. */
  readonly status: number | undefined;
  /** The envelope's, `connection_error` without an answer, `unknown_error` for an answer that is not the server's. */
  readonly type: string;
  readonly details: Readonly<Record<string, unknown>> | undefined;
  readonly requestId: string | undefined;

  constructor(message: string, told: Told) {
    super(message, { cause: told.cause });
    this.status = told.status;
    this.type = told.type;
    this.details = told.details;
    this.requestId = told.requestId;
  }
}

type Method = 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';
type Parameter = string | number | boolean | undefined;
type Asked = CallOptions & {
  readonly query?: Readonly<Record<string, Parameter | readonly Parameter[]>> | undefined;
  readonly body?: unknown;
  readonly headers?: Readonly<Record<string, string>> | undefined;
};

const RETRIES_MAX = 4;
const ANSWER_MS_MAX = 30_000;
const BACKOFF_MS_MIN = 200;
const BACKOFF_MS_MAX = 10_000;
/** A server that asks for more is not waited for that long. */
const RETRY_AFTER_MS_MAX = 60_000;

/** A variable that is not set is told by its name here, in place of a refusal of "undefined". Throws TypeError. */
export function checkAccess(options: ClientOptions, others: Readonly<Record<string, string>> = {}): void {
  const { baseUrl, apiKey } = options;
  for (const [name, value] of Object.entries({ baseUrl, apiKey, ...others })) {
    if (typeof value !== 'string' || value === '') throw new TypeError(`${name} must be a text that is not empty`);
  }
  if (!URL.canParse(baseUrl)) throw new TypeError('baseUrl must be an address, such as http://127.0.0.1:8080');
}

/**
 * One call of a route, tried again when nothing is known of it or the server asked for another try: a lost connection, 429,
 * 503, and 409 while the first try still runs. A change carries one Idempotency-Key over all its tries, so it is done once.
 * Throws ControlError; what the caller's signal was aborted with, as it is.
 */
export function createCall(options: ClientOptions, root: '/control/v1' | '/v1' = '/control/v1') {
  checkAccess(options);
  const { baseUrl, apiKey, retriesMax = RETRIES_MAX, answerMsMax = ANSWER_MS_MAX, sleep = wait } = options;
  const send = options.fetch ?? fetch;

  return async function call<Answer>(method: Method, path: string, asked: Asked = {}): Promise<Answer> {
    const { body, query = {}, signal } = asked;
    const url = new URL(`${baseUrl.replace(/\/+$/, '')}${root}${path}`);
    for (const [name, values] of Object.entries(query)) {
      for (const value of [values].flat()) if (value !== undefined) url.searchParams.append(name, `${value}`);
    }
    const headers: Record<string, string> = { ...asked.headers, 'x-api-key': apiKey };
    if (body !== undefined) headers['content-type'] = 'application/json';
    if (method !== 'GET') headers['idempotency-key'] = asked.idempotencyKey ?? crypto.randomUUID();
    const request = { method, headers, ...(body === undefined ? {} : { body: JSON.stringify(body) }) };

    for (let retry = 0; ; retry++) {
      const tried = await tryOnce(url, request);
      if ('answer' in tried) return tried.answer as Answer;
      signal?.throwIfAborted();
      if (!tried.again || retry >= retriesMax) throw tried.error;
      await sleep(Math.max(tried.retryAfterMs, backoffMs(retry)), signal);
    }

    async function tryOnce(url: URL, request: RequestInit): Promise<Tried> {
      const signals = [AbortSignal.timeout(answerMsMax), ...(signal === undefined ? [] : [signal])];
      try {
        const response = await send(url, { ...request, signal: AbortSignal.any(signals) });
        const text = await response.text();
        return response.ok ? { answer: text === '' ? undefined : JSON.parse(text) } : refused(response, text);
      } catch (cause) {
        return { again: true, retryAfterMs: 0, error: unreached(cause) };
      }
    }
  };
}

type Refused = { readonly again: boolean; readonly retryAfterMs: number; readonly error: ControlError };
type Tried = { readonly answer: unknown } | Refused;

export const unreached = (cause: unknown): ControlError =>
  new ControlError('the server could not be reached', { type: 'connection_error', cause });

export function refused({ status, headers }: Pick<Response, 'status' | 'headers'>, text: string): Refused {
  const { message, type, details } = readEnvelope(text);
  const requestId = headers.get('request-id') ?? undefined;
  const again = status === 429 || status === 503 || details?.error_code === 'idempotency_in_progress';
  const retryAfterMs = Math.min((Number(headers.get('retry-after')) || 0) * 1_000, RETRY_AFTER_MS_MAX);
  return { again, retryAfterMs, error: new ControlError(message, { status, type, details, requestId }) };
}

function readEnvelope(text: string): { message: string; type: string; details?: Record<string, unknown> } {
  try {
    const { error } = JSON.parse(text);
    if (typeof error.message === 'string' && typeof error.type === 'string') return error;
  } catch {
    // not ours: something in between answered
  }
  return { message: text.slice(0, 200) || 'no message', type: 'unknown_error' };
}

/** Doubling, with jitter, so that those who failed together do not come back together. */
export const backoffMs = (retry: number): number =>
  Math.min(BACKOFF_MS_MAX, BACKOFF_MS_MIN * 2 ** retry) * (0.5 + Math.random() / 2);

/** Rejects with the signal's reason. */
export function wait(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason);
    const abort = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener('abort', abort);
      resolve();
    }, ms);
    signal?.addEventListener('abort', abort, { once: true });
  });
}

/** A path whose values stay what they are, whatever they hold. */
export const path = (texts: TemplateStringsArray, ...values: string[]): string =>
  String.raw({ raw: texts }, ...values.map(encodeURIComponent));
