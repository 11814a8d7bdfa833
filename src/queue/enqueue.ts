import { sql } from 'kysely';
import type { CallerTransaction, Database } from '../db/connect.ts';
import { isForeignKeyViolation } from '../db/failures.ts';
import { environmentNotFound, QueueError } from './errors.ts';
import { mintId } from './ids.ts';
import {
  type ItemRow,
  itemAnswer,
  itemSource,
  type TraceContext,
  toWorkItem,
  WORK_KINDS,
  type WorkItem,
  type WorkKind,
} from './items.ts';
import { checkInteger, checkMetadata, checkText, isInstant, LIMITS } from './limits.ts';

export type EnqueueRequest = {
  readonly environmentId: string;
  /** The caller's own text, 1 to 256 characters. */
  readonly sessionId: string;
  /** Default `tool_exec`. */
  readonly kind?: WorkKind;
  readonly metadata?: Readonly<Record<string, string>>;
  /** -100 to 100, higher first, default 0. */
  readonly priority?: number;
  /** Not handed out before this instant of the database's clock; RFC 3339 with an offset. */
  readonly notBefore?: string;
  readonly traceContext?: TraceContext;
};

export type Enqueued = {
  /** False when a live item of the same environment, session and kind covers the request already. */
  readonly created: boolean;
  readonly item: WorkItem;
  /** Polls serve only the wire lane; the lane is fixed here (design §1). */
  readonly lane: 'wire' | 'process';
};

/** A loser of the race for the slot sees no row once; a slot that changes hands faster than this is a caller's loop. */
const ATTEMPTS_MAX = 5;
/** What a header can carry: poll gives the trace context back in headers (contract §9). */
const HEADER_TEXT = /^[\x20-\x7e]{1,512}$/;

/**
 * Puts work in, once while it is live: unique by (environment, session, kind) over queued, starting and active (contract §4).
 * With `transaction` the row and its notification commit with the caller's own writes, and the statement's own failures
 * (a serialisation failure, say) come out as they are.
 * An archived environment takes no new work; what a live item covers is not new.
 * Refuses: invalid_request, invalid_metadata, environment_not_found, environment_archived.
 */
export async function enqueue(
  database: Database,
  request: EnqueueRequest,
  transaction?: CallerTransaction,
): Promise<Enqueued> {
  check(request);
  const { workItems, environments } = database.names;
  const { environmentId, sessionId, kind = 'tool_exec' } = request;
  const statement = sql<Partial<ItemRow> & { found: Truth; archived: Truth; created: Truth; lane: 'wire' | 'process' }>`
    with place as materialized (
      select e.id, e.archived_at, case when ${kind} = 'tool_exec' and e.type = 'self_hosted' then 'wire' else 'process' end as lane
      from ${environments} e where e.id = ${environmentId}
    ), created as (
      insert into ${workItems} (id, environment_id, session_id, kind, lane, state, priority, not_before, metadata,
        traceparent, tracestate, created_at)
      select ${mintId('work')}, p.id, ${sessionId}, ${kind}, p.lane, 'queued', ${request.priority ?? 0}::smallint,
        ${request.notBefore ?? null}::timestamptz, ${JSON.stringify(request.metadata ?? {})}::jsonb,
        ${request.traceContext?.traceparent ?? null}, ${request.traceContext?.tracestate ?? null}, clock_timestamp()
      from place p where p.archived_at is null
      on conflict (environment_id, session_id, kind) where state in ('queued', 'starting', 'active') do nothing
      returning ${itemSource('work_items')}, lane, true as created
    ), covering as (
      select ${itemSource('w')}, w.lane, false as created from ${workItems} w
      where w.environment_id = ${environmentId} and w.session_id = ${sessionId} and w.kind = ${kind}
        and w.state in ('queued', 'starting', 'active') and not exists (select from created)
    ), answer as (
      select ${itemSource('c')}, c.lane, c.created from created c
      union all select ${itemSource('v')}, v.lane, v.created from covering v
    )
    select exists (select from place)::text as found,
      exists (select from place p where p.archived_at is not null)::text as archived, a.created::text as created, a.lane, ${itemAnswer('a')},
      case when ${transaction !== undefined} and a.created and a.lane = 'wire'
        then pg_notify(${database.channel}, ${environmentId})::text end as told
    from (select 1) one left join answer a on true`;

  for (let attempt = 0; attempt < ATTEMPTS_MAX; attempt++) {
    const [row] = await database.rows(statement, transaction).catch((error: unknown) => {
      throw isForeignKeyViolation(error) ? environmentNotFound(environmentId) : error; // it was deleted while this waited for its row
    });
    if (row?.found !== 'true') throw environmentNotFound(environmentId);
    if (row.archived === 'true' && !isItem(row)) {
      throw new QueueError('environment_archived', `environment ${environmentId} is archived: it takes no new work`);
    }
    if (isItem(row)) return { created: row.created === 'true', lane: row.lane, item: toWorkItem(row) };
  }
  throw new QueueError('unavailable', `the session's slot changed hands ${ATTEMPTS_MAX} times, try again`);
}

/** Text like all that is answered: the caller's connection may parse booleans, too. */
type Truth = 'true' | 'false';

const isItem = <T extends Partial<ItemRow>>(row: T): row is T & ItemRow => typeof row.id === 'string';

function check(request: EnqueueRequest): void {
  checkText('environmentId', request.environmentId, LIMITS.idCharacters);
  checkText('sessionId', request.sessionId, LIMITS.sessionIdCharacters);
  if (request.kind !== undefined && !WORK_KINDS.includes(request.kind)) {
    throw new QueueError('invalid_request', `kind must be one of ${WORK_KINDS.join(', ')}`);
  }
  if (request.priority !== undefined) checkInteger('priority', request.priority, -100, 100);
  const { notBefore } = request;
  if (notBefore !== undefined && !isInstant(notBefore)) {
    throw new QueueError('invalid_request', 'notBefore must be an RFC 3339 instant with an offset');
  }
  for (const [name, value] of Object.entries(request.traceContext ?? {})) {
    if (value !== undefined && !HEADER_TEXT.test(value)) {
      throw new QueueError('invalid_request', `traceContext.${name} must be 1 to 512 printable ASCII characters`);
    }
  }
  checkMetadata(request.metadata ?? {});
}
