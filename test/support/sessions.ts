import { randomBytes } from 'node:crypto';
import { sql } from 'kysely';
import { createEnvironment } from '../../src/control/environments.ts';
import { issueKey } from '../../src/control/keys.ts';
import type { Database } from '../../src/db/connect.ts';
import { type Answer, type CallOptions, OPERATOR_KEY, type Server } from './harness.ts';
import { readSecret } from './wire.ts';

// biome-ignore lint/suspicious/noExplicitAny: a test reads what it expects and fails where it is not there
type Json = any;

export const text = (what: string) => [{ type: 'text', text: what }];
export const MESSAGE = { type: 'user.message', content: text('go on') };
export const INTERRUPT = { type: 'user.interrupt' };
export const SAID = { type: 'agent.message', content: text('done') };
export const TOOL = { type: 'agent.tool_use', name: 'bash', input: { command: 'ls' } };
export const ASKED = { ...TOOL, evaluated_permission: 'ask' };
export const DENIED = { ...TOOL, evaluated_permission: 'deny' };
export const CUSTOM = { type: 'agent.custom_tool_use', name: 'deploy', input: {} };
export const result = (id: string, fields: object = { content: text('out') }) => ({
  ...{ type: 'user.tool_result', tool_use_id: id },
  ...fields,
});
export const customResult = (id: string) => ({
  ...{ type: 'user.custom_tool_result', custom_tool_use_id: id },
  content: text('out'),
});
export const verdict = (id: string, said: 'allow' | 'deny') => ({
  ...{ type: 'user.tool_confirmation', tool_use_id: id },
  result: said,
});

export const path = (id: string, rest = '') => `/v1/sessions/${id}${rest}`;

/** What a worker knows of the item that it holds. */
export type Worker = { readonly id: string; readonly token: string; readonly heartbeat: string };

export type ItemRow = { id: string; state: string; stop_reason: string | null; not_before: string | null };

/** An environment of a test's own, and the calls of an agent and of a worker in it. What a set-up needs to succeed throws when it does not. */
export type RelayPlace = Awaited<ReturnType<typeof relayPlace>>;

export async function relayPlace(server: Pick<Server, 'call' | 'database'>) {
  const { call, database } = server;
  const { id: environmentId } = await createEnvironment(database, {
    name: `relay ${randomBytes(6).toString('hex')}`,
    type: 'self_hosted',
  });
  const { key } = await issueKey(database, { environmentId, name: 'workers' });
  const work = `/v1/environments/${environmentId}/work`;

  const create = (body: object = {}, options: CallOptions = {}) =>
    call('POST', '/v1/sessions', { as: OPERATOR_KEY, body: { environment_id: environmentId, ...body }, ...options });
  const send = (id: string, events: readonly unknown[], options: CallOptions = {}) =>
    call('POST', path(id, '/events'), { as: OPERATOR_KEY, body: { events }, ...options });
  const append = async (id: string, ...events: object[]): Promise<Json[]> => done(await send(id, events)).json.data;
  const events = async (id: string, query = ''): Promise<Json[]> =>
    done(await call('GET', path(id, `/events?limit=1000${query}`), { as: OPERATOR_KEY })).json.data;
  const poll = async (): Promise<Json> => done(await call('GET', `${work}/poll`, { as: key })).json;

  return {
    environmentId,
    key,
    create,
    /** A new session's id. */
    session: async (body: object = {}): Promise<string> => done(await create(body)).json.id,
    send,
    append,
    /** The id of a new call. */
    tool: async (id: string, event: object = TOOL): Promise<string> => (await append(id, event))[0].id,
    /** As a worker does, with the environment's key. */
    answer: (id: string, ...sent: object[]) => send(id, sent, { as: key }),
    events,
    /** Its status events, in short. */
    told: async (id: string): Promise<string[]> =>
      (await events(id)).filter(({ type }) => type.startsWith('session.')).map(inShort),
    poll,
    /** Polls, acks and beats: the worker of the item that is free. */
    async work(): Promise<Worker> {
      const polled = await poll();
      if (polled === null) throw new Error('set-up failed: there is no work');
      const { id, secret } = polled;
      done(await call('POST', `${work}/${id}/ack`, { as: key }));
      const beat = await call('POST', `${work}/${id}/heartbeat?expected_last_heartbeat=NO_HEARTBEAT`, { as: key });
      return { id, token: readSecret(secret).sessions_token, heartbeat: done(beat).json.last_heartbeat };
    },
    stop: async (id: string, options: CallOptions = {}) =>
      done(await call('POST', `${work}/${id}/stop`, { as: key, body: { force: true }, ...options })),
  };
}

/** `running`, `end_turn`, `requires_action 2`. */
export const inShort = ({ type, stop_reason: reason }: Json): string => {
  if (type !== 'session.status_idle') return type.replace('session.status_', '');
  return reason.type === 'requires_action' ? `requires_action ${reason.event_ids.length}` : reason.type;
};

function done(answer: Answer): Answer {
  if (answer.status >= 400) throw new Error(`set-up failed: ${answer.status} ${answer.text}`);
  return answer;
}

/** Everything that is stored of sessions and of work, to be compared before and after a refusal. */
export async function everything(database: Database): Promise<string> {
  const { sessions, sessionEvents, workItems } = database.names;
  const [row] = await database.rows(sql<{ all: string }>`
    select (select json_agg(s order by s.id) from ${sessions} s)::text || (select coalesce(json_agg(e order by e.id), '[]') from ${sessionEvents} e)::text
      || (select coalesce(json_agg(w order by w.id), '[]') from ${workItems} w)::text as all`);
  return row?.all ?? '';
}

/** A session's whole row. */
export async function sessionRow({ names, rows }: Database, id: string): Promise<Json> {
  const [row] = await rows(
    sql<{ row: string }>`select to_jsonb(s)::text as row from ${names.sessions} s where id = ${id}`,
  );
  return row === undefined ? undefined : JSON.parse(row.row);
}

/** The items of a session, oldest first. */
export async function itemsOf({ names, rows }: Database, id: string): Promise<ItemRow[]> {
  return rows(sql<ItemRow>`
    select w.id, w.state, w.stop_reason, w.not_before::text as not_before from ${names.workItems} w
    where w.session_id = ${id} order by w.seq`);
}
