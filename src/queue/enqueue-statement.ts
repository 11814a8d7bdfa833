import { type RawBuilder, sql } from 'kysely';
import type { Database } from '../db/connect.ts';
import { given, type TableNames } from '../db/sql.ts';
import type { EnqueueRequest } from './enqueue.ts';
import { mintId } from './ids.ts';
import { type ItemRow, itemAnswer, itemSource, type Lane, laneOf, tellOf } from './items.ts';

export type Verdict =
  | 'environment_not_found'
  | 'environment_archived'
  | 'kind_refused'
  | 'taken'
  | 'known'
  | 'covered'
  | 'new';

/** Text like all that is answered: the caller's connection may parse booleans, too. */
export type EnqueueRow = Partial<ItemRow> & {
  readonly verdict: Verdict;
  readonly created: 'true' | 'false';
  readonly lane: Lane;
};

export type EnqueueOptions = {
  /**
   * All or nothing: a lost race is a unique violation. Otherwise each is for itself: what is refused, and what lost a race for its slot, is answered without
   * an item, and nothing is written for it; a lost race for a request id is still a violation.
   */
  readonly isWhole: boolean;
  /** For a row or a slot that somebody else holds it waits no longer; undefined: as long as the connection does. */
  readonly lockTimeoutMs?: number | undefined;
  /** The notification is part of the statement. */
  readonly isTold: boolean;
  /** An insert of the caller's that becomes part of the statement, and may select from `answer`. */
  readonly alongside: RawBuilder<unknown> | undefined;
};

/**
 * The one statement of an enqueue: judges each request, writes only when none is refused, and answers a row a request. What no
 * request asks for is not part of it: it would cost as much as the rest.
 */
export function enqueueStatement(
  { names, channel, schema }: Database,
  requests: readonly EnqueueRequest[],
  { isWhole, isTold, alongside, lockTimeoutMs }: EnqueueOptions,
): RawBuilder<EnqueueRow> {
  const { environments, workItems } = names;
  const isBatch = requests.length > 1;
  const hasFollowUp = requests.some(({ followUp }) => followUp);
  const hasInput = requests.some(({ input }) => input !== undefined);
  const hasRequestId = requests.some(({ requestId }) => requestId !== undefined);
  return sql`
    with ${wanted(requests, lockTimeoutMs)}, ${hasRequestId ? known(names) : noneKnown}, occupied as materialized (
      select l.seq, q.slot from wanted q cross join lateral (
        -- The limit keeps it from being a join, for which statistics of an empty queue would have all that is live read.
        select w.seq from ${workItems} w
        where w.environment_id = q.environment_id and w.session_id = q.session_id and w.kind = q.kind
          and w.state in ('queued', 'starting', 'active')
        limit 1
      ) l
    ), covering as materialized (
      select ${itemSource('w')}, w.lane, o.slot from occupied o join ${workItems} w on w.seq = o.seq
      where (w.state in ('queued', 'starting', 'active')) is true
      order by w.seq ${hasFollowUp ? sql`for no key update of w` : sql``}
    ), judged as materialized (
      select q.slot, coalesce(k.seq, c.seq) as seq,
        ${laneOf(sql`q.kind`, sql`e.type`)} as lane,
        case when e.id is null then 'environment_not_found'
          when k.agrees then 'known'
          when k.slot is not null then 'taken'
          when q.kind = 'outputs_harvest' and e.type = 'self_hosted' then 'kind_refused'
          when e.archived_at is not null and (c.seq is null or q.follow_up) then 'environment_archived'
          when c.seq is not null then 'covered'
          else 'new' end as verdict
      from wanted q left join ${environments} e on e.id = q.environment_id left join known k on k.slot = q.slot
        left join covering c on c.slot = q.slot
    ), open as materialized (
      select q.*, j.seq, j.lane, j.verdict,
        first_value(q.id) over (partition by q.environment_id, q.session_id, q.kind order by q.slot) as first_id
      from wanted q join judged j on j.slot = q.slot
      where j.verdict in ('covered', 'new')
        ${isWhole ? sql`and not exists (select from judged b where b.verdict not in ('known', 'covered', 'new'))` : sql``}
    ), ${hasFollowUp ? follow : noneFollows}, ${isBatch ? numbered(schema) : sql``}created as (
      insert into ${workItems} (${isBatch ? sql`seq, ` : sql``}id, environment_id, session_id, kind, lane, state, priority, not_before, metadata, max_hand_outs,
        max_attempts, next_attempt_at, follow_up, traceparent, tracestate, created_at)
      ${isBatch ? sql`overriding system value` : sql``}
      select ${isBatch ? sql`o.new_seq, ` : sql``}o.id, o.environment_id, o.session_id, o.kind, o.lane, 'queued', o.priority, o.not_before, o.metadata,
        o.max_hand_outs, o.max_attempts, case o.lane when 'process' then o.not_before end, f.follow_up, o.traceparent, o.tracestate, ${isBatch ? sql`o.created_at` : sql`clock_timestamp()`}
      from ${isBatch ? sql`numbered` : sql`open`} o left join follow f on f.first_id = o.id
      where o.verdict = 'new'
      order by ${isBatch ? sql`o.environment_id, o.session_id, o.kind` : sql`o.slot`}
      ${isWhole ? sql`` : sql`on conflict (environment_id, session_id, kind) where state in ('queued', 'starting', 'active') do nothing`}
      returning ${itemSource('work_items')}, lane
    )${hasInput ? inputs(names) : sql``}${hasFollowUp ? followed(names) : sql``}${hasRequestId ? remembered(names) : sql``},
    found as materialized (
      select o.slot, ${itemSource('c')}, c.lane from open o join created c on c.id = o.first_id
      union all
      select j.slot, ${itemSource('c')}, c.lane from judged j join covering c on c.slot = j.slot where j.verdict = 'covered'
      union all
      select j.slot, ${itemSource('w')}, w.lane from judged j join ${workItems} w on w.seq = j.seq where j.verdict = 'known'
    ), answer as materialized (
      select j.slot, j.verdict, coalesce(f.id = o.id, false) as created, f.lane, ${itemSource('f')}
      from judged j left join open o on o.slot = j.slot left join found f on f.slot = j.slot
    )${alongside === undefined ? sql`` : sql`, alongside as (${alongside})`}
    select n.verdict, n.created::text as created, n.lane, ${itemAnswer('n')},
      ${isTold ? tellOf(channel, 'created') : sql`null`} as told
    from answer n order by n.slot`;
}

const wanted = (requests: readonly EnqueueRequest[], lockTimeoutMs: number | undefined) => sql`${
  lockTimeoutMs === undefined
    ? sql``
    : sql`patience as materialized (select set_config('lock_timeout', ${`${lockTimeoutMs}ms`}, true)), `
}wanted as materialized (
      select t.environment_id, t.session_id, t.kind, t.priority, t.not_before::timestamptz as not_before,
        t.metadata::jsonb as metadata, t.input, t.max_hand_outs, t.max_attempts, t.request_id, t.follow_up, t.traceparent, t.tracestate, t.id, t.slot
      from ${given(requests, {
        environment_id: ['text', (r) => r.environmentId],
        session_id: ['text', (r) => r.sessionId],
        kind: ['text', (r) => r.kind ?? 'tool_exec'],
        priority: ['smallint', (r) => r.priority ?? 0],
        not_before: ['text', (r) => r.notBefore],
        metadata: ['text', (r) => JSON.stringify(r.metadata ?? {})],
        input: ['text', (r) => (r.input === undefined ? null : JSON.stringify(r.input))],
        max_hand_outs: ['integer', (r) => r.maxHandOuts],
        max_attempts: ['integer', (r) => r.maxAttempts],
        request_id: ['text', (r) => r.requestId],
        follow_up: ['boolean', (r) => r.followUp ?? false],
        traceparent: ['text', (r) => r.traceContext?.traceparent],
        tracestate: ['text', (r) => r.traceContext?.tracestate],
        id: ['text', () => mintId('work')],
      })}${lockTimeoutMs === undefined ? sql`` : sql` cross join patience`}
    )`;

/** What is remembered under the request ids, and whether it is the same work. */
const known = ({ requestIds, workItems }: TableNames) => sql`known as materialized (
      select q.slot, w.seq, w.session_id = q.session_id and w.kind = q.kind as agrees
      from wanted q join ${requestIds} r on r.environment_id = q.environment_id and r.request_id = q.request_id
        join ${workItems} w on w.seq = r.item_seq
    )`;

/** A row of nulls, which joins nothing. */
const noneKnown = sql`known as (select null::bigint as slot, null::bigint as seq, null::boolean as agrees)`;

/** The first follow-up of each slot: of a covering item any, of a new one only a later request's (see follow-up.ts). */
const follow = sql`follow as materialized (
      select distinct on (o.first_id) o.first_id, o.seq,
        jsonb_build_object('id', o.id, 'priority', o.priority, 'not_before', o.not_before, 'metadata', o.metadata, 'input', o.input,
          'max_hand_outs', o.max_hand_outs, 'max_attempts', o.max_attempts, 'traceparent', o.traceparent, 'tracestate', o.tracestate) as follow_up
      from open o where o.follow_up and (o.verdict = 'covered' or o.id <> o.first_id)
      order by o.first_id, o.slot
    )`;

const noneFollows = sql`follow as (select null::text as first_id, null::jsonb as follow_up)`;

/**
 * New items of a batch are numbered in the order given, since they are handed out so; they take their slots in another one, the
 * same for all: crosswise, two calls would deadlock.
 */
const numbered = (schema: string) => sql`numbered as materialized (
      select n.*, clock_timestamp() as created_at,
        nextval((select pg_get_serial_sequence(${`${schema}.work_items`}, 'seq')::regclass)) as new_seq
      from (select o.* from open o where o.id = o.first_id order by o.slot) n
    ), `;

const inputs = ({ workInputs }: TableNames) => sql`, inputs as (
      insert into ${workInputs} (item_seq, input)
      select c.seq, o.input from created c join open o on o.id = c.id where o.input is not null
    )`;

const followed = ({ workItems }: TableNames) => sql`, followed as (
      update ${workItems} w set follow_up = f.follow_up from follow f where w.seq = f.seq and w.follow_up is null
    )`;

const remembered = ({ requestIds }: TableNames) => sql`, remembered as (
      insert into ${requestIds} (environment_id, request_id, item_seq)
      select distinct on (o.environment_id, o.request_id) o.environment_id, o.request_id, coalesce(o.seq, c.seq)
      from open o left join created c on c.id = o.first_id
      where o.request_id is not null and coalesce(o.seq, c.seq) is not null
      order by o.environment_id, o.request_id
    )`;
