import { randomBytes } from 'node:crypto';
import { sql } from 'kysely';
import { createEnvironment, type Environment } from '../../src/control/environments.ts';
import { issueKey } from '../../src/control/keys.ts';
import type { Database } from '../../src/db/connect.ts';
import { type Answer, type CallOptions, lapse, rowOf, type Server } from './harness.ts';

type BeatOptions = CallOptions & { ttl?: number; retry?: string };

/** An environment of a test's own on a shared server, so that no other item answers its polls; and the wire calls in it. */
export type Place = {
  readonly database: Database;
  readonly environment: Environment;
  enqueue(sessionId?: string, metadata?: Record<string, string>): Promise<string>;
  poll(query?: string, options?: CallOptions): Promise<Answer>;
  ack(id: string, options?: CallOptions): Promise<Answer>;
  beat(id: string, expected: string, options?: BeatOptions): Promise<Answer>;
  stop(id: string, options?: CallOptions): Promise<Answer>;
  forceStop(id: string, options?: CallOptions): Promise<Answer>;
  retrieve(id: string, options?: CallOptions): Promise<Answer>;
  patch(id: string, options?: CallOptions): Promise<Answer>;
  get(path: string): Promise<Answer>;
};

export async function newPlace(server: Server, type: Environment['type'] = 'self_hosted'): Promise<Place> {
  const { database } = server;
  const environment = await createEnvironment(database, { name: `place ${randomBytes(6).toString('hex')}`, type });
  const { key } = await issueKey(database, { environmentId: environment.id, name: 'workers' });
  const call = (method: string, path: string, options: CallOptions = {}) =>
    server.call(method, `/v1/environments/${environment.id}/work${path}`, { as: key, ...options });
  return {
    database,
    environment,
    async enqueue(sessionId = randomBytes(6).toString('hex'), metadata = {}) {
      return (await server.queue.enqueue({ environmentId: environment.id, sessionId, metadata })).item.id;
    },
    poll: (query = '', options) => call('GET', `/poll${query}`, options),
    ack: (id, options) => call('POST', `/${id}/ack`, options),
    beat(id, expected, { ttl, retry, ...options } = {}) {
      const query = new URLSearchParams({ expected_last_heartbeat: expected });
      if (ttl !== undefined) query.set('desired_ttl_seconds', String(ttl));
      const headers: Record<string, string> = retry === undefined ? {} : { 'x-stainless-retry-count': retry };
      return call('POST', `/${id}/heartbeat?${query}`, { headers, ...options });
    },
    stop: (id, options) => call('POST', `/${id}/stop`, options),
    forceStop: (id, options) => call('POST', `/${id}/stop`, { body: { force: true }, ...options }),
    retrieve: (id, options) => call('GET', `/${id}`, options),
    patch: (id, options) => call('POST', `/${id}`, { body: { metadata: { patched: 'yes' } }, ...options }),
    get: (path) => call('GET', path),
  };
}

export const STALE_TOKEN = '2020-01-01T00:00:00.000001Z';

type ItemCall = (place: Place, id: string, options?: CallOptions) => Promise<Answer>;

/** Every call that names an item and that a holder makes. */
export const HOLDER_CALLS: Readonly<Record<string, ItemCall>> = {
  ack: (place, id, options) => place.ack(id, options),
  'the first heartbeat': (place, id, options) => place.beat(id, 'NO_HEARTBEAT', options),
  'a heartbeat': (place, id, options) => place.beat(id, STALE_TOKEN, options),
  stop: (place, id, options) => place.stop(id, options),
  'stop force': (place, id, options) => place.forceStop(id, options),
};

/** Every call that names an item. */
export const ITEM_CALLS: Readonly<Record<string, ItemCall>> = {
  ...HOLDER_CALLS,
  retrieve: (place, id, options) => place.retrieve(id, options),
  'metadata update': (place, id, options) => place.patch(id, options),
};

/** A step of a set-up that did not do what it should is a broken test, not a finding. */
function done(answer: Answer): Answer {
  if (answer.status >= 400 || answer.json === null) throw new Error(`set-up failed: ${answer.status} ${answer.text}`);
  return answer;
}

export type Item = { readonly id: string; readonly token: string | null };
type Step = (place: Place, item: Item) => Promise<Partial<Item> | undefined>;

export const setLease = async ({ database }: Place, id: string, seconds: number | null): Promise<void> => {
  const { workItems } = database.names;
  await database.rows(sql`update ${workItems}
    set lease_expires_at = clock_timestamp() + ${seconds}::float8 * interval '1 second' where id = ${id}`);
};

const step =
  (act: (place: Place, id: string) => Promise<unknown>): Step =>
  async (place, { id }) =>
    void (await act(place, id));
const poll = step(async (place) => done(await place.poll()));
const ack = step(async (place, id) => done(await place.ack(id)));
const beat: Step = async (place, { id, token }) => ({
  token: done(await place.beat(id, token ?? 'NO_HEARTBEAT')).json.last_heartbeat,
});
const stop = step(async (place, id) => done(await place.stop(id)));
const forceStop = step(async (place, id) => done(await place.forceStop(id)));
const lapsed = step((place, id) => lapse(place.database, id));
const leaseless = step((place, id) => setLease(place, id, null));

/** How an item comes to stand in each row of the contract's state table. */
const ROWS = {
  'queued, never handed out': [],
  'queued, reservation live': [poll],
  'queued, reservation lapsed': [poll, lapsed],
  'starting, lease live': [poll, ack],
  'starting, lease lapsed': [poll, ack, lapsed],
  'active, lease live': [poll, ack, beat],
  'active, lease lapsed': [poll, ack, beat, lapsed],
  'stopping, lease live': [poll, ack, beat, stop],
  'stopping, lease lapsed': [poll, ack, beat, stop, lapsed],
  'stopping, no lease': [poll, ack, beat, stop, leaseless],
  'stopped, ever active': [poll, ack, beat, forceStop],
  'stopped, acked but never active': [poll, ack, forceStop],
  'stopped, never acked': [poll, forceStop],
} as const satisfies Record<string, readonly Step[]>;
export type RowName = keyof typeof ROWS;

/** Brings a fresh item there; the place must have no other one that a poll could take. */
export async function itemIn(place: Place, row: RowName, metadata: Record<string, string> = {}): Promise<Item> {
  return along(place, { id: await place.enqueue(undefined, metadata), token: null }, row);
}

/** The same for an item that was just enqueued, or, where it `isPolled`, handed out. */
export async function along(place: Place, enqueued: Item, row: RowName, isPolled = false): Promise<Item> {
  let item = enqueued;
  for (const next of ROWS[row].slice(isPolled ? 1 : 0)) item = { ...item, ...(await next(place, item)) };
  return item;
}

/** The row by its internal key, which stays when the id rotates. */
export async function rowBySeq(database: Database, seq: string | null | undefined) {
  const { workItems } = database.names;
  const [found] = await database.rows(
    sql<{ id: string }>`select id from ${workItems} where seq = ${String(seq)}::bigint`,
  );
  return rowOf(database, found?.id ?? `with seq ${seq}`);
}

/** From one column (default: the database's now) to another, in seconds; null without a lease. */
export async function secondsUntilLapse(
  database: Database,
  id: string,
  from: 'now' | 'handed_out_at' | 'last_heartbeat' = 'now',
): Promise<number | null> {
  const { workItems } = database.names;
  const start = from === 'now' ? sql`clock_timestamp()` : sql.ref(from);
  const [row] = await database.rows(sql<{ seconds: number | null }>`
    select extract(epoch from lease_expires_at - ${start})::float8 as seconds from ${workItems} where id = ${id}`);
  return row?.seconds ?? null;
}

/** The sessions token in a poll's answer (contract §6). */
export const sessionsTokenOf = (polled: Answer): string =>
  JSON.parse(Buffer.from(polled.json.secret, 'base64url').toString()).sessions_token;
