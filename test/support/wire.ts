import { connect } from 'node:net';
import type { Test } from 'tap';
import type { Answer, Server } from './harness.ts';

/** What contract §1 says an error answer's type is, by its status. */
const ERROR_TYPES: Readonly<Record<number, string>> = {
  400: 'invalid_request_error',
  401: 'authentication_error',
  403: 'permission_error',
  404: 'not_found_error',
  409: 'conflict_error',
  412: 'invalid_request_error',
  413: 'request_too_large',
  429: 'rate_limit_error',
  500: 'api_error',
  503: 'overloaded_error',
};

/** What every answer carries, whatever its status (contract §1). */
export function checkCarries(t: Test, { headers }: Answer, what: string): void {
  t.match(headers.get('request-id'), /^req_/, `${what}: request-id`);
  t.equal(headers.get('cache-control'), 'no-store', `${what}: cache-control`);
}

/** The whole envelope of contract §1, with the headers that its status asks for. */
export function checkRefusal(t: Test, answer: Answer, status: number, what: string): void {
  const { headers, json } = answer;
  t.equal(answer.status, status, `${what}: status`);
  checkCarries(t, answer, what);
  t.match(headers.get('content-type'), /^application\/json(;|$)/, `${what}: content-type`);
  t.match(json, { type: 'error', error: { type: ERROR_TYPES[status], message: /./ } }, `${what}: envelope`);
  t.strictSame(Object.keys(json).sort(), ['error', 'request_id', 'type'], `${what}: nothing else in the envelope`);
  t.equal(json.request_id, headers.get('request-id'), `${what}: request_id is the header's`);
  if (status === 409) t.equal(headers.get('x-should-retry'), 'false', `${what}: x-should-retry`);
  if (status === 503) t.match(headers.get('retry-after'), /^[1-9]\d*$/, `${what}: retry-after`);
}

const ANSWER_MS_MAX = 60_000;

/**
 * Sends bytes as they are and reads until the server closes: what fetch cannot express. Ask for `connection: close`, unless
 * the bytes are such that the server hangs up by itself.
 */
export function exchange(url: string, bytes: string | Buffer): Promise<Answer> {
  const { hostname, port } = new URL(url);
  return new Promise((resolve, reject) => {
    const socket = connect(Number(port), hostname);
    const chunks: Buffer[] = [];
    socket.setTimeout(ANSWER_MS_MAX, () => socket.destroy(new Error('the server neither answered nor closed')));
    socket.on('data', (chunk) => chunks.push(chunk));
    socket.on('error', reject);
    socket.on('close', () => {
      try {
        resolve(parseAnswer(Buffer.concat(chunks).toString()));
      } catch (error) {
        reject(error);
      }
    });
    socket.write(bytes);
  });
}

function parseAnswer(raw: string): Answer {
  const [head = '', ...rest] = raw.split('\r\n\r\n');
  const [statusLine = '', ...lines] = head.split('\r\n');
  const status = Number(/^HTTP\/1\.1 (\d{3}) /.exec(statusLine)?.[1]);
  if (!Number.isInteger(status)) throw new Error(`not an HTTP answer: ${JSON.stringify(raw.slice(0, 200))}`);
  const headers = new Headers(
    lines.map((line): [string, string] => [line.split(':', 1)[0] ?? '', line.replace(/^[^:]*: */, '')]),
  );
  const text = rest.join('\r\n\r\n');
  return { status, headers, text, json: text === '' ? undefined : JSON.parse(text) };
}

/** A request's head, closing afterwards; the credential is the environment's key. */
export function head(
  server: Server,
  method: string,
  path: string,
  headers: Readonly<Record<string, string>> = {},
): string {
  const sent = { host: 'test', connection: 'close', authorization: `Bearer ${server.environmentKey}`, ...headers };
  const lines = Object.entries(sent).map(([name, value]) => `${name}: ${value}\r\n`);
  return `${method} ${path} HTTP/1.1\r\n${lines.join('')}\r\n`;
}

export type Place = {
  environmentId: string;
  workId: string;
  /** An environment key, an API key and an item that was set aside: what some routes change. `completePlace` makes them. */
  keyId?: string;
  apiKeyId?: string;
  setAsideId?: string;
  /** A session of the relay whose item is `workId`, and its one open call, of a custom tool. */
  sessionId?: string;
  callId?: string;
  /** A lock that is held, and its token. */
  lockName?: string;
  lockToken?: number;
};

/** A route of the contract: what to send to it, what it answers, and whom §2 lets in. */
export type Route = {
  readonly name: string;
  readonly method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';
  path(place: Place): string;
  readonly body?: (place: Place) => unknown;
  /** It changes nothing, and read-only keys may send it all the same. */
  readonly changesNothing?: true;
  readonly access: 'item' | 'holder' | 'member' | 'environment' | 'session' | 'operator';
  readonly success: number;
};

const work = (place: Place) => `/v1/environments/${place.environmentId}/work`;
const item = (place: Place) => `${work(place)}/${place.workId}`;
const session = ({ sessionId = 'sesn_x' }: Place) => `/v1/sessions/${sessionId}`;
const lock = (place: Place) => `${control(place)}/locks/${place.lockName ?? 'lock-x'}`;
const control = (place: Place) => `/control/v1/environments/${place.environmentId}`;
let names = 0;
const fresh = (what: string) => `${what} ${process.pid} ${names++}`;

/** All but archiving an environment, after which the others would not do what they do, and streaming, which does not end. */
export const ROUTES: readonly Route[] = [
  { name: 'poll', method: 'GET', path: (p) => `${work(p)}/poll`, access: 'environment', success: 200 },
  { name: 'ack', method: 'POST', path: (p) => `${item(p)}/ack`, access: 'item', success: 200 },
  {
    name: 'heartbeat',
    method: 'POST',
    path: (p) => `${item(p)}/heartbeat?expected_last_heartbeat=NO_HEARTBEAT`,
    access: 'item',
    success: 200,
  },
  { name: 'stop', method: 'POST', path: (p) => `${item(p)}/stop`, access: 'item', success: 204 },
  {
    name: 'metadata update',
    method: 'POST',
    path: item,
    body: () => ({ metadata: { patched: 'yes' } }),
    access: 'environment',
    success: 200,
  },
  { name: 'retrieve', method: 'GET', path: item, access: 'environment', success: 200 },
  { name: 'list', method: 'GET', path: work, access: 'environment', success: 200 },
  { name: 'stats', method: 'GET', path: (p) => `${work(p)}/stats`, access: 'environment', success: 200 },
  {
    name: 'create environment',
    method: 'POST',
    path: () => '/v1/environments',
    body: () => ({ name: fresh('environment') }),
    access: 'operator',
    success: 200,
  },
  {
    name: 'retrieve environment',
    method: 'GET',
    path: (p) => `/v1/environments/${p.environmentId}`,
    access: 'operator',
    success: 200,
  },
  {
    name: 'update environment',
    method: 'POST',
    path: (p) => `/v1/environments/${p.environmentId}`,
    body: () => ({ description: 'changed' }),
    access: 'operator',
    success: 200,
  },
  { name: 'list environments', method: 'GET', path: () => '/v1/environments', access: 'operator', success: 200 },
  {
    name: 'delete environment',
    method: 'DELETE',
    path: (p) => `/v1/environments/${p.environmentId}`,
    access: 'operator',
    success: 409, // wherever routes are tried there is unfinished work
  },
  {
    name: 'issue key',
    method: 'POST',
    path: (p) => `${control(p)}/keys`,
    body: () => ({ name: 'more workers' }),
    access: 'operator',
    success: 201,
  },
  { name: 'list in detail', method: 'GET', path: (p) => `${control(p)}/work`, access: 'operator', success: 200 },
  {
    name: 'history',
    method: 'GET',
    path: (p) => `${control(p)}/work/${p.workId}/history`,
    access: 'operator',
    success: 200,
  },
  { name: 'workers', method: 'GET', path: (p) => `${control(p)}/workers`, access: 'operator', success: 200 },
  {
    name: 'issue events ticket',
    method: 'POST',
    path: (p) => `${control(p)}/events/tickets`,
    changesNothing: true,
    access: 'environment',
    success: 201,
  },
  { name: 'diagnosis', method: 'GET', path: (p) => `${control(p)}/diagnosis`, access: 'operator', success: 200 },
  {
    name: 'introspect',
    method: 'POST',
    path: () => '/control/v1/tokens/introspect',
    body: () => ({ token: `lhs_work_x.${'x'.repeat(43)}` }),
    access: 'operator',
    success: 200,
  },
  // The last: what it leaves queued would be handed out to the others.
  {
    name: 'list environment keys',
    method: 'GET',
    path: (p) => `${control(p)}/keys`,
    access: 'operator',
    success: 200,
  },
  {
    name: 'issue API key',
    method: 'POST',
    path: () => '/control/v1/keys',
    body: () => ({ name: 'dashboard', role: 'read_only' }),
    access: 'operator',
    success: 201,
  },
  { name: 'list API keys', method: 'GET', path: () => '/control/v1/keys', access: 'operator', success: 200 },
  ...[
    (p: Place) => `${control(p)}/keys/${p.keyId ?? 'key_x'}`,
    (p: Place) => `/control/v1/keys/${p.apiKeyId ?? 'key_x'}`,
  ].flatMap((path, n): Route[] => {
    const what = ['environment', 'API'][n];
    return [
      {
        name: `rotate ${what} key`,
        method: 'POST',
        path: (p) => `${path(p)}/rotate`,
        access: 'operator',
        success: 201,
      },
      { name: `revoke ${what} key`, method: 'DELETE', path, access: 'operator', success: 200 },
    ];
  }),
  {
    name: 'enqueue',
    method: 'POST',
    path: (p) => `${control(p)}/work`,
    body: () => ({ data: { type: 'session', id: fresh('session') } }),
    access: 'operator',
    success: 201,
  },
  {
    name: 'enqueue a batch',
    method: 'POST',
    path: (p) => `${control(p)}/work/batch`,
    body: () => ({ items: [1, 2].map(() => ({ data: { type: 'session', id: fresh('batch') } })) }),
    access: 'operator',
    success: 200,
  },
  {
    name: 'cancel session',
    method: 'POST',
    path: (p) => `${control(p)}/work/cancel`,
    body: () => ({ data: { type: 'session', id: 'to be changed' } }),
    access: 'operator',
    success: 200,
  },
  {
    name: 'requeue',
    method: 'POST',
    path: (p) => `${control(p)}/work/${p.setAsideId ?? 'work_x'}/requeue`,
    access: 'operator',
    success: 201,
  },
  { name: 'input', method: 'GET', path: (p) => `${control(p)}/work/${p.workId}/input`, access: 'holder', success: 200 },
  {
    name: 'result',
    method: 'GET',
    path: (p) => `${control(p)}/work/${p.workId}/result`,
    access: 'holder',
    success: 200,
  },
  {
    name: 'report',
    method: 'PATCH',
    path: (p) => `${control(p)}/work/${p.workId}`,
    body: () => ({ status: 'succeeded', result: { n: 1 } }),
    access: 'holder',
    success: 200,
  },
  {
    name: 'release',
    method: 'POST',
    path: (p) => `${control(p)}/work/${p.workId}/release`,
    body: () => ({ delay_ms: 60_000 }),
    access: 'holder',
    success: 200,
  },
  { name: 'read settings', method: 'GET', path: (p) => `${control(p)}/settings`, access: 'operator', success: 200 },
  {
    name: 'change settings',
    method: 'PATCH',
    path: (p) => `${control(p)}/settings`,
    body: () => ({ retention_days: 9 }),
    access: 'operator',
    success: 200,
  },
  { name: 'pause', method: 'POST', path: (p) => `${control(p)}/pause`, access: 'operator', success: 200 },
  { name: 'resume', method: 'POST', path: (p) => `${control(p)}/resume`, access: 'operator', success: 200 },
  { name: 'list audit', method: 'GET', path: () => '/control/v1/audit', access: 'operator', success: 200 },
  {
    name: 'acquire lock',
    method: 'PUT',
    path: lock,
    body: () => ({ owner: 'tests' }),
    access: 'member',
    success: 200,
  },
  {
    name: 'renew lock',
    method: 'POST',
    path: (p) => `${lock(p)}/renew`,
    body: ({ lockToken = 1 }) => ({ token: lockToken }),
    access: 'member',
    success: 200,
  },
  {
    name: 'release lock',
    method: 'POST',
    path: (p) => `${lock(p)}/release`,
    body: ({ lockToken = 1 }) => ({ token: lockToken }),
    access: 'member',
    success: 200,
  },
  { name: 'list locks', method: 'GET', path: (p) => `${control(p)}/locks`, access: 'member', success: 200 },
  ...['/v1', '/control/v1'].map(
    (prefix): Route => ({
      name: `create session under ${prefix}`,
      method: 'POST',
      path: () => `${prefix}/sessions`,
      body: ({ environmentId }) => ({ environment_id: environmentId }),
      access: 'operator',
      success: 200,
    }),
  ),
  { name: 'list sessions', method: 'GET', path: () => '/v1/sessions', access: 'environment', success: 200 },
  { name: 'retrieve session', method: 'GET', path: session, access: 'session', success: 200 },
  {
    name: 'update session',
    method: 'POST',
    path: session,
    body: () => ({ title: 'changed' }),
    access: 'operator',
    success: 200,
  },
  { name: 'list events', method: 'GET', path: (p) => `${session(p)}/events`, access: 'session', success: 200 },
  ...(['session', 'operator'] as const).map(
    (access): Route => ({
      name: `send events, ${access}`,
      method: 'POST',
      path: (p) => `${access === 'session' ? '' : '/control'}${session(p)}/events`,
      body: ({ callId = 'sevt_x' }) => ({ events: [{ type: 'user.custom_tool_result', custom_tool_use_id: callId }] }),
      access,
      success: 200,
    }),
  ),
  { name: 'archive session', method: 'POST', path: (p) => `${session(p)}/archive`, access: 'operator', success: 200 },
  { name: 'delete session', method: 'DELETE', path: session, access: 'operator', success: 200 },
];

/** One call of a route, its body made for it. */
export const callRoute = (server: Pick<Server, 'call'>, route: Route, place: Place, as: string | null) =>
  server.call(route.method, route.path(place), {
    as,
    ...(route.body === undefined ? {} : { body: route.body(place) }),
  });

/** What a poll's `secret` says (contract §6). */
export const readSecret = (secret: string): { sessions_token: string; api_base_url: string } =>
  JSON.parse(Buffer.from(secret, 'base64url').toString());
