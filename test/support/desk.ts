import { sql } from 'kysely';
import type { Environment } from '../../src/control/environments.ts';
import type { Database } from '../../src/db/connect.ts';
import { type Answer, type CallOptions, OPERATOR_KEY, type Server } from './harness.ts';
import { newPlace } from './places.ts';

type Fields = Readonly<Record<string, unknown>>;

/** What an operator asks of an environment's work over HTTP. */
export type Desk = {
  enqueue(sessionId: string, fields?: Fields, options?: CallOptions): Promise<Answer>;
  batch(items: readonly (readonly [sessionId: string, fields?: Fields])[], options?: CallOptions): Promise<Answer>;
  cancel(sessionId: string, options?: CallOptions): Promise<Answer>;
  requeue(id: string, options?: CallOptions): Promise<Answer>;
  input(id: string, as?: string): Promise<Answer>;
  archive(): Promise<Answer>;
};

export const asked = (sessionId: string, fields: Fields = {}) => ({
  data: { type: 'session', id: sessionId },
  ...fields,
});

export function desk(server: Pick<Server, 'call'>, environmentId: string): Desk {
  const work = `/control/v1/environments/${environmentId}/work`;
  const call = (method: string, path: string, options: CallOptions = {}) =>
    server.call(method, path, { as: OPERATOR_KEY, ...options });
  return {
    enqueue: (sessionId, fields, options) => call('POST', work, { body: asked(sessionId, fields), ...options }),
    batch: (items, options) =>
      call('POST', `${work}/batch`, { body: { items: items.map((item) => asked(...item)) }, ...options }),
    cancel: (sessionId, options) => call('POST', `${work}/cancel`, { body: asked(sessionId), ...options }),
    requeue: (id, options) => call('POST', `${work}/${id}/requeue`, options),
    input: (id, as = OPERATOR_KEY) => call('GET', `${work}/${id}/input`, { as }),
    archive: () => call('POST', `/v1/environments/${environmentId}/archive`),
  };
}

/** A place of a test's own with its desk; `along` and the like take the `place`. */
export async function newDesk(server: Server, type?: Environment['type']) {
  const place = await newPlace(server, type);
  const { database } = place;
  const { id } = place.environment;
  return {
    ...{ ...place, ...desk(server, id), place, id },
    items: () => stored(database, id),
    all: () => written(database, id),
  };
}

export type NewDesk = Awaited<ReturnType<typeof newDesk>>;

export type Stored = {
  readonly id: string;
  readonly session: string;
  readonly kind: string;
  readonly state: string;
  readonly reason: string | null;
  readonly input: string | null;
};

/** All items of an environment in the order of their making. */
export async function stored({ rows, names }: Database, environmentId: string): Promise<Stored[]> {
  return rows(sql<Stored>`
    select w.id, w.session_id as session, w.kind, w.state, w.stop_reason as reason, i.input
    from ${names.workItems} w left join ${names.workInputs} i on i.item_seq = w.seq
    where w.environment_id = ${environmentId} order by w.seq`);
}

/** Everything that enqueue writes, of an environment, to be compared before and after. */
export async function written(database: Database, environmentId: string): Promise<unknown> {
  const { rows, names } = database;
  const items = await rows(sql`
    select to_jsonb(w)::text as row from ${names.workItems} w where w.environment_id = ${environmentId} order by w.seq`);
  const ids = await rows(sql`
    select r.request_id, r.item_seq::text from ${names.requestIds} r where r.environment_id = ${environmentId} order by 1`);
  return { items, ids, stored: await stored(database, environmentId) };
}
