import { sql } from 'kysely';
import { openApiDocument } from '../../openapi/document.ts';
import { createEnvironment } from '../../src/control/environments.ts';
import { issueKey } from '../../src/control/keys.ts';
import type { Database } from '../../src/db/connect.ts';
import { acquireLock } from '../../src/locks/acquire.ts';
import { createSession } from '../../src/sessions/create.ts';
import type { SentEvent } from '../../src/sessions/events.ts';
import { listEvents } from '../../src/sessions/read-events.ts';
import { type Answer, type CallOptions, OPERATOR_KEY, type Server } from './harness.ts';
import { type Place, ROUTES, type Route } from './wire.ts';

/** A place that names each parameter as a route's pattern does: `environmentId` is `{environment_id}`. */
const PATTERN = new Proxy({} as Place, {
  get: (_, name) => `{${String(name).replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)}}`,
});

export const patternOf = (route: Route): string => {
  const [path = ''] = route.path(PATTERN).split('?');
  return path
    .replace('{api_key_id}', '{key_id}')
    .replace('{set_aside_id}', '{work_id}')
    .replace('{lock_name}', '{name}');
};

/** One only reads, what the other makes opens what its maker may read, for a minute. */
const HARMLESS = /introspect|ticket/i;

export type Operation = {
  readonly method: string;
  readonly path: string;
  readonly operationId: string;
  readonly headers: readonly string[];
  readonly statuses: readonly string[];
};

/** Every route of the app that is no reading, as the document says: no list of our own could be complete for ever. */
export async function documentedChanges(): Promise<Operation[]> {
  const { paths } = JSON.parse(await openApiDocument());
  type Documented = {
    operationId: string;
    parameters?: { in: string; name: string }[];
    responses: Record<string, unknown>;
  };
  return Object.entries<Record<string, Documented>>(paths).flatMap(([path, methods]) =>
    Object.entries(methods)
      .filter(([method, { operationId }]) => method !== 'get' && !HARMLESS.test(operationId))
      .map(([method, { operationId, parameters = [], responses }]) => ({
        method: method.toUpperCase(),
        path,
        operationId,
        headers: parameters.filter((parameter) => parameter.in === 'header').map((parameter) => parameter.name),
        statuses: Object.keys(responses),
      })),
  );
}

/** What is changed for an operator. A lock is its holder's, and who acquires it again is known by its owner. */
const isOurs = (path: string): boolean => path.startsWith('/control/v1/') && !path.includes('/locks/');

export const CONTROL_CHANGES: readonly Route[] = ROUTES.filter(
  (route) => route.method !== 'GET' && isOurs(patternOf(route)) && !HARMLESS.test(patternOf(route)),
);

export const isControlChange = ({ path }: Operation): boolean => isOurs(path);

/** One request of a route, to be sent as often as a test likes. */
export type Sending = { readonly method: string; readonly path: string; readonly options: CallOptions };

export const sendingOf = (route: Route, place: Place, key: string, as: string = OPERATOR_KEY): Sending => ({
  method: route.method,
  path: route.path(place),
  options: {
    as,
    headers: { 'idempotency-key': key },
    ...(route.body === undefined ? {} : { body: route.body(place) }),
  },
});

export const send = ({ call }: Pick<Server, 'call'>, { method, path, options }: Sending): Promise<Answer> =>
  call(method, path, options);

/** An environment with one queued item, for one route to change as it likes. */
export async function freshPlace(server: Server, name: string): Promise<Place> {
  const { id } = await createEnvironment(server.database, { name, type: 'self_hosted' });
  const { item } = await server.queue.enqueue({ environmentId: id, sessionId: 'to be changed' });
  return completePlace(server, { environmentId: id, workId: item.id });
}

let places = 0;

/** What of a place a route names, in its path and its body. */
export function namedBy(route: Route): ReadonlySet<string> {
  const named = new Set<string>();
  const noting = new Proxy({} as Place, { get: (_, name) => void named.add(String(name)) });
  route.path(noting);
  route.body?.(noting);
  return named;
}

/** With what those routes change that name neither an environment nor its item; where the route is told, only with what that one names. */
export async function completePlace({ database, queue }: Server, place: Place, route?: Route): Promise<Place> {
  const { environmentId } = place;
  const named = route === undefined ? undefined : namedBy(route);
  const isNamed = (...names: (keyof Place)[]) => names.some((name) => named?.has(name) ?? true);
  const more: { -readonly [name in keyof Place]: Place[name] } = { ...place };
  const keyOf = async (owner: string | null) =>
    (await issueKey(database, { environmentId: owner, name: 'to be changed' })).id;
  if (isNamed('setAsideId')) {
    const { item } = await queue.enqueue({ environmentId, sessionId: `set aside ${process.pid} ${places++}` });
    await database.rows(sql`update ${database.names.workItems}
      set state = 'stopped', stopped_at = clock_timestamp(), stop_reason = 'exhausted' where id = ${item.id}`);
    more.setAsideId = item.id;
  }
  if (isNamed('keyId')) more.keyId = await keyOf(environmentId);
  if (isNamed('apiKeyId')) more.apiKeyId = await keyOf(null);
  if (isNamed('sessionId', 'callId')) {
    const call: SentEvent = { type: 'agent.custom_tool_use', name: 'ask', input: {} };
    const { session } = await createSession(database, { environmentId, initialEvents: [call] });
    const { events } = await listEvents(database, session.id, { limit: 1 });
    await database.rows(
      sql`update ${database.names.workItems} set session_id = ${session.id} where id = ${place.workId}`,
    );
    more.sessionId = session.id;
    more.callId = JSON.parse(events[0] ?? '').id;
  }
  // Who holds it may be asked to give it back.
  await database.rows(sql`update ${database.names.workItems}
    set handed_out_at = clock_timestamp(), hand_out_count = 1, lease_expires_at = clock_timestamp() + interval '10 minutes'
    where id = ${place.workId} and handed_out_at is null`);
  if (isNamed('lockName', 'lockToken')) {
    more.lockName = 'to-be-changed';
    more.lockToken = (await acquireLock(database, { environmentId, name: more.lockName, owner: 'tests' })).token;
  }
  return more;
}

/** What an answer says, without what is every answer's own. */
export const said = ({ status, json }: Answer) => ({ status, json: { ...json, request_id: undefined } });

/** The key that an answer shows, if it shows one. */
export const keyIn = ({ text }: Answer): string | undefined => /lh[ek]_[\w-]{43}/.exec(text)?.[0];

/** How many rows each table holds. */
export async function rowCounts(database: Database): Promise<Record<string, number>> {
  const counts = Object.entries(database.names).map(
    ([name, table]) => sql`select ${name}::text as name, count(*)::integer as count from ${table}`,
  );
  const rows = await database.rows(sql<{ name: string; count: number }>`${sql.join(counts, sql` union all `)}`);
  return Object.fromEntries(rows.map(({ name, count }) => [name, count]));
}

/** Everything that is stored, as text. */
export async function everything(database: Database): Promise<string> {
  const texts = Object.values(database.names).map((table) => sql`select to_jsonb(x)::text as text from ${table} x`);
  const rows = await database.rows(sql<{ text: string }>`${sql.join(texts, sql` union all `)}`);
  return rows.map(({ text }) => text).join('\n');
}

/** The audit log, newest first. */
export async function auditOf(server: Pick<Server, 'call'>, query = ''): Promise<Record<string, unknown>[]> {
  const { json } = await server.call('GET', `/control/v1/audit?limit=1000${query}`, { as: OPERATOR_KEY });
  return json.data;
}
