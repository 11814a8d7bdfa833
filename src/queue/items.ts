import { type RawBuilder, sql } from 'kysely';
import { rfc3339, type TableNames } from '../db/sql.ts';
import { QueueError } from './errors.ts';
import { isStorable } from './limits.ts';

export const WORK_STATES = ['queued', 'starting', 'active', 'stopping', 'stopped'] as const;
export type WorkState = (typeof WORK_STATES)[number];

export const WORK_KINDS = ['model_turn', 'tool_exec', 'web_exec', 'outputs_harvest', 'mcp_exec'] as const;
export type WorkKind = (typeof WORK_KINDS)[number];

/** A work item as the database recorded it. Instants are RFC 3339 text with microseconds, null until reached. */
export type WorkItem = {
  /** Rotates on re-hand-out; `seq` does not. */
  readonly id: string;
  readonly seq: string;
  readonly environmentId: string;
  readonly sessionId: string;
  readonly kind: WorkKind;
  readonly state: WorkState;
  readonly metadata: Readonly<Record<string, string>>;
  readonly createdAt: string;
  readonly acknowledgedAt: string | null;
  readonly startedAt: string | null;
  readonly lastHeartbeat: string | null;
  readonly stopRequestedAt: string | null;
  readonly stoppedAt: string | null;
  readonly traceContext: TraceContext | null;
};

/** W3C trace context, as enqueue stored it (contract §9). */
export type TraceContext = { readonly traceparent: string; readonly tracestate?: string };

/** The columns that make an item, passed unchanged from one part of a statement to the next. */
export const itemSource = (alias: string): RawBuilder<unknown> =>
  sql.join(
    [
      ...['seq', 'id', 'environment_id', 'session_id', 'kind', 'state', 'metadata', 'created_at', 'acknowledged_at'],
      ...['started_at', 'last_heartbeat', 'stop_requested_at', 'stopped_at', 'traceparent', 'tracestate'],
    ].map((column) => sql.ref(`${alias}.${column}`)),
  );

/**
 * The same columns as a statement answers them. Everything is text by then, also JSON and bigint: the connection may be a
 * caller's, with type parsers of its own.
 */
export const itemAnswer = (alias: string): RawBuilder<unknown> => {
  const column = (name: string) => sql.ref(`${alias}.${name}`);
  const instant = (name: string) => rfc3339(column(name));
  return sql`${column('seq')}::text as "seq", ${column('id')} as "id", ${column('environment_id')} as "environmentId",
    ${column('session_id')} as "sessionId", ${column('kind')} as "kind", ${column('state')} as "state",
    ${column('metadata')}::text as "metadata", ${instant('created_at')} as "createdAt",
    ${instant('acknowledged_at')} as "acknowledgedAt", ${instant('started_at')} as "startedAt",
    ${instant('last_heartbeat')} as "lastHeartbeat", ${instant('stop_requested_at')} as "stopRequestedAt",
    ${instant('stopped_at')} as "stoppedAt", ${column('traceparent')} as "traceparent",
    ${column('tracestate')} as "tracestate"`;
};

/**
 * How far a hand-out came, also once the sweep has reset its row. A late ack is one of the same hand-out: its first ack and
 * start count, and its last heartbeat.
 */
export const handOutReached = (alias: string): RawBuilder<unknown> => {
  const first = (reset: string, present: string) =>
    sql`coalesce(${sql.ref(`${alias}.${reset}`)}, ${sql.ref(`${alias}.${present}`)})`;
  return sql`${first('lapsed_acknowledged_at', 'acknowledged_at')} as acknowledged_at,
    ${first('lapsed_started_at', 'started_at')} as started_at, ${first('last_heartbeat', 'lapsed_heartbeat')} as last_heartbeat`;
};

/**
 * When the lease of a present hand-out ran out; null while it is live, also again after a late ack, and when it ended before
 * that. What ends an item because its lease lapsed leaves that instant in `lapsed_at`, as the sweep does.
 */
export const handOutLapsed = (alias: string): RawBuilder<unknown> => {
  const column = (name: string) => sql.ref(`${alias}.${name}`);
  return sql`case when ${column('lease_expires_at')} <= clock_timestamp() then ${column('lease_expires_at')}
    when ${column('lease_expires_at')} is null and ${column('lapsed_at')} > coalesce(${column('acknowledged_at')}, '-infinity')
    then ${column('lapsed_at')} end`;
};

export type ItemRow = Omit<WorkItem, 'metadata' | 'traceContext'> & {
  readonly metadata: string;
  readonly traceparent: string | null;
  readonly tracestate: string | null;
};

export function toWorkItem(row: ItemRow): WorkItem {
  return {
    id: row.id,
    seq: row.seq,
    environmentId: row.environmentId,
    sessionId: row.sessionId,
    kind: row.kind,
    state: row.state,
    metadata: JSON.parse(row.metadata),
    createdAt: row.createdAt,
    acknowledgedAt: row.acknowledgedAt,
    startedAt: row.startedAt,
    lastHeartbeat: row.lastHeartbeat,
    stopRequestedAt: row.stopRequestedAt,
    stoppedAt: row.stoppedAt,
    traceContext:
      row.traceparent === null
        ? null
        : { traceparent: row.traceparent, ...(row.tracestate === null ? {} : { tracestate: row.tracestate }) },
  };
}

/** Polled or claimed: fixed at enqueue by the kind and the environment's type (design §1). */
export type Lane = 'wire' | 'process';

export const laneOf = (kind: RawBuilder<unknown>, environmentType: RawBuilder<unknown>): RawBuilder<Lane> =>
  sql`case when ${kind} = 'tool_exec' and ${environmentType} = 'self_hosted' then 'wire' else 'process' end`;

/** What tells whom an item is for. */
export type Offered = Pick<WorkItem, 'kind' | 'environmentId'> & { readonly lane: Lane };

/** Of a live item `w` on the wire: where it stands, as the indexes of those have it, and no index that holds finished items (`migrations/0005_hot_path.ts`). */
export const standsIn = (environmentId: unknown): RawBuilder<unknown> =>
  sql`(w.environment_id || '') = ${environmentId} and w.lane = 'wire'`;

/** The same of a queued one: written so, it is of the indexes of queued items alone, and not of one that holds whatever is live. */
export const isQueuedIn = (environmentId: unknown): RawBuilder<unknown> =>
  sql`${standsIn(environmentId)} and (w.state = 'queued') is true`;

/** Whom new work wakes: the polls that wait on its environment, or those who claim its kind. */
export const topicOf = ({ lane, kind, environmentId }: Offered): string =>
  lane === 'wire' ? environmentId : kindTopic(kind);

const KIND_TOPIC = 'kind:';
export const kindTopic = (kind: WorkKind): string => `${KIND_TOPIC}${kind}`;

/** Notifies of rows with lane, kind and environment_id, for a statement in a caller's transaction; one a topic. */
export const tellOf = (channel: string, source: string): RawBuilder<unknown> => {
  const column = (name: string) => sql.ref(`${source}.${name}`);
  return sql`(select count(pg_notify(${channel}, case ${column('lane')} when 'wire' then ${column('environment_id')}
    else ${sql.lit(KIND_TOPIC)} || ${column('kind')} end)) from ${sql.ref(source)})::text`;
};

/** Names one item on the wire lane. */
export type WorkRef = { readonly environmentId: string; readonly id: string };

/** An id that could not be stored cannot be there, and SQL would refuse the question. Refuses: not_found. */
export function checkRef({ environmentId, id }: WorkRef): void {
  if (!isStorable(environmentId) || !isStorable(id)) throw notFound(id);
}

/**
 * No such id (any more) in this environment, on this lane (contract §4). `presentId`: the item was handed out again, and what
 * it is called now.
 */
export function notFound(id: string, presentId: string | null = null): QueueError {
  if (presentId === null) return new QueueError('not_found', `work item ${id} was not found in this environment`);
  return new QueueError(
    'not_found',
    `work item ${id} was handed out again under a new id: this one is no longer valid`,
    {
      details: { error_code: 'work_superseded', work_id: presentId },
    },
  );
}

/** What the item is called now that once was called so; null when none was. */
export const presentId = (
  { workItems, handOuts }: TableNames,
  environmentId: RawBuilder<unknown>,
  id: RawBuilder<unknown>,
) =>
  sql`(select n.id from ${handOuts} h join ${workItems} n on n.seq = h.item_seq
    where h.work_id = ${id} and h.environment_id = ${environmentId})`;
