import { type RawBuilder, sql } from 'kysely';
import { type CallerTransaction, type Database, within } from '../db/connect.ts';
import { isDeadlock, isForeignKeyViolation, isUniqueViolation } from '../db/failures.ts';
import { checkEnqueue } from './check-enqueue.ts';
import { environmentNotFound, QueueError } from './errors.ts';
import { mintId } from './ids.ts';
import {
  type ItemRow,
  itemAnswer,
  itemSource,
  type TraceContext,
  toWorkItem,
  type WorkItem,
  type WorkKind,
} from './items.ts';
import { LIMITS } from './limits.ts';

export type EnqueueRequest = {
  readonly environmentId: string;
  /** The caller's own text, 1 to 256 characters. */
  readonly sessionId: string;
  /** Default `tool_exec`. */
  readonly kind?: WorkKind;
  readonly metadata?: Readonly<Record<string, string>>;
  /** Any JSON value, at most 256 KiB of UTF-8. The wire object cannot carry it: it is read apart. */
  readonly input?: unknown;
  /** -100 to 100, higher first, default 0. */
  readonly priority?: number;
  /** Not handed out before this instant of the database's clock; RFC 3339 with an offset. */
  readonly notBefore?: string;
  /** Handed out that often without finishing, it is set aside; 1 to 1000000. Default: the environment's. */
  readonly maxHandOuts?: number;
  /** 1 to 200 characters, the name of this piece of work: asked for again, the same item answers, as long as it is remembered. */
  readonly requestId?: string;
  /** Covered by a live item, this request becomes its successor's: enqueued by the statement that frees the slot. One an item. */
  readonly followUp?: boolean;
  readonly traceContext?: TraceContext;
};

export type Enqueued = {
  /** False when a remembered request or a live item of the same environment, session and kind answers. */
  readonly created: boolean;
  readonly item: WorkItem;
  /** Polls serve only the wire lane; the lane is fixed here (design §1). */
  readonly lane: 'wire' | 'process';
};

/** Who loses a race for a slot or a request id looks again; what changes hands faster than this is a caller's loop. */
const ATTEMPTS_MAX = 5;

/** One request: see `enqueueAll`. */
export async function enqueue(
  database: Database,
  request: EnqueueRequest,
  transaction?: CallerTransaction,
  alongside?: RawBuilder<unknown>,
): Promise<Enqueued> {
  checkEnqueue(request);
  const [enqueued] = await run(database, [request], transaction, () => '');
  if (enqueued === undefined) throw new Error('one request, no answer');
  return enqueued;
}

/**
 * Puts work in, all or nothing, 1 to 1000 requests; answers in the order asked. In this order (contract §4):
 * a known request id answers its item, in whatever state; a live item of the same environment, session and kind covers the
 * request, and the request id is remembered for it; else there is a new item. An earlier request of the call covers a later one.
 * With `transaction` the rows and their notification commit with the caller's own writes, and the statement's own failures
 * (a serialisation failure, say) come out as they are. An archived environment takes no new work; what is covered is not new.
 * `alongside` is an insert of the caller's that becomes part of the statement. It selects from `answer`, a row a request: `created`,
 * and `id`, null unless all is done.
 * Refuses: invalid_request, invalid_metadata, environment_not_found, environment_archived; conflict when a request id is known for
 * another session or kind.
 */
export async function enqueueAll(
  database: Database,
  requests: readonly EnqueueRequest[],
  transaction?: CallerTransaction,
  alongside?: RawBuilder<unknown>,
): Promise<Enqueued[]> {
  if (requests.length < 1 || requests.length > LIMITS.itemsPerCall) {
    throw new QueueError('invalid_request', `a call takes 1 to ${LIMITS.itemsPerCall} items, not ${requests.length}`);
  }
  for (const [index, request] of requests.entries()) checkEnqueue(request, `items.${index}.`);
  return run(database, withRepeats(requests), transaction, (index) => `items.${index}.`);
}

/**
 * A request id that stood in the call before is known by then: it names that item, and is no follow-up of it. Refuses:
 * conflict when that was for another session or kind.
 */
function withRepeats(requests: readonly EnqueueRequest[]): EnqueueRequest[] {
  const first = new Map<string, EnqueueRequest>();
  return requests.map((request, index) => {
    const { environmentId, requestId, sessionId, kind = 'tool_exec' } = request;
    if (requestId === undefined) return request;
    const key = JSON.stringify([environmentId, requestId]);
    const earlier = first.get(key);
    if (earlier === undefined) {
      first.set(key, request);
      return request;
    }
    if (earlier.sessionId !== sessionId || (earlier.kind ?? 'tool_exec') !== kind) {
      throw taken(request, index, `items.${index}.`);
    }
    return { ...request, followUp: false };
  });
}

/** `where` names a request in its call, in refusals. */
async function run(
  given: Database,
  requests: readonly EnqueueRequest[],
  transaction: CallerTransaction | undefined,
  where: (index: number) => string,
): Promise<Enqueued[]> {
  const database = transaction === undefined ? given : within(given, transaction);
  // Alone and without a request id the loser of a race writes nothing and looks again. What must be all or nothing fails
  // as a whole instead: in a transaction of the caller's, back to where it was before.
  const isWhole = requests.length > 1 || requests.some(({ requestId }) => requestId !== undefined);
  const savepoint = isWhole && database.isTransaction;
  // In a transaction of our own, whoever opened it tells once it is committed (design §5).
  const statement = enqueueStatement(database, requests, { isWhole, isTold: transaction !== undefined });
  let cause: unknown;

  for (let attempt = 0; attempt < ATTEMPTS_MAX; attempt++) {
    if (savepoint) await database.rows(sql`savepoint leasehold_enqueue`);
    let rows: EnqueueRow[];
    try {
      rows = await database.rows(statement);
    } catch (error) {
      // It was deleted while this waited for its row.
      const isGone = isForeignKeyViolation(error);
      if (isGone && !isWhole) throw environmentNotFound(requests[0]?.environmentId ?? '');
      if (!isWhole || !(isGone || isUniqueViolation(error) || isDeadlock(error))) throw error;
      if (savepoint) {
        await database.rows(sql`rollback to savepoint leasehold_enqueue`);
        await database.rows(sql`release savepoint leasehold_enqueue`);
      }
      cause = error;
      continue;
    }
    if (savepoint) await database.rows(sql`release savepoint leasehold_enqueue`);
    const refusal = refusalOf(rows, requests, where);
    if (refusal !== undefined) throw refusal;
    const answers = rows.flatMap((row) =>
      isItem(row) ? [{ created: row.created === 'true', lane: row.lane, item: toWorkItem(row) }] : [],
    );
    if (answers.length === requests.length) return answers;
  }
  throw new QueueError('unavailable', `a session's slot changed hands ${ATTEMPTS_MAX} times, try again`, { cause });
}

type Verdict = 'environment_not_found' | 'environment_archived' | 'taken' | 'known' | 'covered' | 'new';

/** Text like all that is answered: the caller's connection may parse booleans, too. */
type EnqueueRow = Partial<ItemRow> & {
  readonly verdict: Verdict;
  readonly created: 'true' | 'false';
  readonly lane: 'wire' | 'process';
};

const isItem = (row: EnqueueRow): row is EnqueueRow & ItemRow => typeof row.id === 'string';

/** With one request `where` is empty, and there is no index to tell. */
function taken({ requestId }: EnqueueRequest, index: number, where: string): QueueError {
  const message = `${where}request_id ${JSON.stringify(requestId)} is known for another session or kind`;
  return new QueueError('conflict', message, where === '' ? {} : { details: { index } });
}

function refusalOf(
  rows: readonly EnqueueRow[],
  requests: readonly EnqueueRequest[],
  whereOf: (index: number) => string,
): QueueError | undefined {
  const index = rows.findIndex(({ verdict }) => !['known', 'covered', 'new'].includes(verdict));
  const request = requests[index];
  if (request === undefined) return undefined;
  const { environmentId } = request;
  const where = whereOf(index);
  switch (rows[index]?.verdict) {
    case 'environment_archived':
      return new QueueError(
        'environment_archived',
        `${where.replace(/\.$/, ': ')}environment ${environmentId} is archived: it takes no new work`,
      );
    case 'taken':
      return taken(request, index, where);
    default:
      return environmentNotFound(environmentId);
  }
}

/** What a follow-up's request becomes, when the slot is free again (see follow-up.ts). */
const FOLLOW_UP = sql`jsonb_build_object('id', o.id, 'priority', o.priority, 'not_before', o.not_before, 'metadata', o.metadata,
  'input', o.input, 'max_hand_outs', o.max_hand_outs, 'traceparent', o.traceparent, 'tracestate', o.tracestate)`;

function enqueueStatement(
  { names, channel }: Database,
  requests: readonly EnqueueRequest[],
  { isWhole, isTold }: { isWhole: boolean; isTold: boolean },
): RawBuilder<EnqueueRow> {
  const { environments, workItems, workInputs, requestIds } = names;
  const each = (field: (request: EnqueueRequest) => unknown) => requests.map((request) => field(request) ?? null);
  // What no request asks for is not part of the statement: it would cost as much as the rest.
  const [hasFollowUp, hasInput, hasRequestId] = [
    requests.some(({ followUp }) => followUp),
    requests.some(({ input }) => input !== undefined),
    requests.some(({ requestId }) => requestId !== undefined),
  ];
  return sql`
    with wanted as materialized (
      select t.environment_id, t.session_id, t.kind, t.priority, t.not_before::timestamptz as not_before,
        t.metadata::jsonb as metadata, t.input, t.max_hand_outs, t.request_id, t.follow_up, t.traceparent, t.tracestate, t.id, t.slot
      from unnest(${each((r) => r.environmentId)}::text[], ${each((r) => r.sessionId)}::text[],
        ${each((r) => r.kind ?? 'tool_exec')}::text[], ${each((r) => r.priority ?? 0)}::smallint[],
        ${each((r) => r.notBefore)}::text[], ${each((r) => JSON.stringify(r.metadata ?? {}))}::text[],
        ${each((r) => (r.input === undefined ? null : JSON.stringify(r.input)))}::text[],
        ${each((r) => r.maxHandOuts)}::integer[], ${each((r) => r.requestId)}::text[],
        ${each((r) => r.followUp ?? false)}::boolean[], ${each((r) => r.traceContext?.traceparent)}::text[],
        ${each((r) => r.traceContext?.tracestate)}::text[], ${each(() => mintId('work'))}::text[]
      ) with ordinality as t(environment_id, session_id, kind, priority, not_before, metadata, input, max_hand_outs, request_id,
        follow_up, traceparent, tracestate, id, slot)
    ), ${
      hasRequestId
        ? sql`known as materialized (
      select q.slot, w.seq, w.session_id = q.session_id and w.kind = q.kind as agrees
      from wanted q join ${requestIds} r on r.environment_id = q.environment_id and r.request_id = q.request_id
        join ${workItems} w on w.seq = r.item_seq
    )`
        : sql`known as (select null::bigint as slot, null::bigint as seq, null::boolean as agrees where false)`
    }, covering as materialized (
      select ${itemSource('w')}, w.lane from (
        select distinct q.environment_id, q.session_id, q.kind from wanted q
        where q.slot not in (select k.slot from known k)
      ) s join ${workItems} w on w.environment_id = s.environment_id and w.session_id = s.session_id and w.kind = s.kind
      where w.state in ('queued', 'starting', 'active')
      ${hasFollowUp ? sql`order by w.seq for no key update of w` : sql``}
    ), judged as materialized (
      select q.slot, coalesce(k.seq, c.seq) as seq,
        case when q.kind = 'tool_exec' and e.type = 'self_hosted' then 'wire' else 'process' end as lane,
        case when e.id is null then 'environment_not_found'
          when k.agrees then 'known'
          when k.slot is not null then 'taken'
          when e.archived_at is not null and (c.seq is null or q.follow_up) then 'environment_archived'
          when c.seq is not null then 'covered'
          else 'new' end as verdict
      from wanted q left join ${environments} e on e.id = q.environment_id left join known k on k.slot = q.slot
        left join covering c on k.slot is null
          and c.environment_id = q.environment_id and c.session_id = q.session_id and c.kind = q.kind
    ), open as materialized (
      select q.*, j.seq, j.lane, j.verdict,
        row_number() over (partition by q.environment_id, q.session_id, q.kind order by q.slot) as turn
      from wanted q join judged j on j.slot = q.slot
      where j.verdict in ('covered', 'new')
        and not exists (select from judged b where b.verdict not in ('known', 'covered', 'new'))
    ), ${
      hasFollowUp
        ? sql`follow as materialized (
      select distinct on (o.environment_id, o.session_id, o.kind) o.environment_id, o.session_id, o.kind, o.seq,
        ${FOLLOW_UP} as follow_up
      from open o where o.follow_up and (o.verdict = 'covered' or o.turn > 1)
      order by o.environment_id, o.session_id, o.kind, o.slot
    ), `
        : sql``
    }created as (
      insert into ${workItems} (id, environment_id, session_id, kind, lane, state, priority, not_before, metadata, max_hand_outs,
        follow_up, traceparent, tracestate, created_at)
      select o.id, o.environment_id, o.session_id, o.kind, o.lane, 'queued', o.priority, o.not_before, o.metadata,
        o.max_hand_outs, ${hasFollowUp ? sql`f.follow_up` : sql`null`}, o.traceparent, o.tracestate, clock_timestamp()
      from open o ${
        hasFollowUp
          ? sql`left join follow f
        on f.environment_id = o.environment_id and f.session_id = o.session_id and f.kind = o.kind`
          : sql``
      }
      where o.verdict = 'new' and o.turn = 1
      order by ${requests.length > 1 ? sql`o.environment_id, o.session_id, o.kind` : sql`o.slot`}
      ${isWhole ? sql`` : sql`on conflict (environment_id, session_id, kind) where state in ('queued', 'starting', 'active') do nothing`}
      returning ${itemSource('work_items')}, lane
    ), ${
      hasInput
        ? sql`inputs as (
      insert into ${workInputs} (item_seq, input)
      select c.seq, o.input from created c join open o on o.id = c.id where o.input is not null
    ), `
        : sql``
    }${
      hasFollowUp
        ? sql`followed as (
      update ${workItems} w set follow_up = f.follow_up from follow f where w.seq = f.seq and w.follow_up is null
    ), `
        : sql``
    }${
      hasRequestId
        ? sql`remembered as (
      insert into ${requestIds} (environment_id, request_id, item_seq)
      select distinct on (o.environment_id, o.request_id) o.environment_id, o.request_id, coalesce(o.seq, c.seq)
      from open o left join created c
        on c.environment_id = o.environment_id and c.session_id = o.session_id and c.kind = o.kind
      where o.request_id is not null
      order by o.environment_id, o.request_id
    )
    select j.verdict, (j.verdict = 'new' and o.turn = 1)::text as created, a.lane, ${itemAnswer('a')},
      ${isTold ? sql`(select count(pg_notify(${channel}, n.environment_id)) from created n where n.lane = 'wire')::text` : sql`null`} as told
    from judged j left join open o on o.slot = j.slot join wanted q on q.slot = j.slot
      left join lateral (
        select ${itemSource('c')}, c.lane from created c where j.verdict = 'new'
          and c.environment_id = q.environment_id and c.session_id = q.session_id and c.kind = q.kind
        union all
        select ${itemSource('c')}, c.lane from covering c where j.verdict = 'covered' and c.seq = j.seq
        union all
        select ${itemSource('w')}, w.lane from ${workItems} w where j.verdict = 'known' and w.seq = j.seq
      ) a on true
    order by j.slot`;
}
