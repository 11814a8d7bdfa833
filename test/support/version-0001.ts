import { sql } from 'kysely';
import type { Database } from '../../src/db/connect.ts';
import { rfc3339 } from '../../src/db/sql.ts';
import { mintId } from '../../src/queue/ids.ts';

/**
 * The statements of the version that knew migration 0001 alone, as they stood there, for one item at a time: a replica of it
 * goes on serving beside newer ones.
 */
export type OldItem = { readonly id: string; readonly state: string };

const columnsOf = (alias: string) =>
  sql.join(
    [
      ...['seq', 'id', 'environment_id', 'session_id', 'kind', 'state', 'metadata', 'created_at', 'acknowledged_at'],
      ...['started_at', 'last_heartbeat', 'stop_requested_at', 'stopped_at', 'traceparent', 'tracestate'],
    ].map((column) => sql.ref(`${alias}.${column}`)),
  );

export function versionBefore(database: Database, environmentId: string) {
  const { workItems, handOuts, environments, credentials, workerSightings } = database.names;
  const only = async <Row>(statement: ReturnType<typeof sql<Row>>): Promise<Row> => {
    const [row] = await database.rows(statement);
    if (row === undefined) throw new Error('no row');
    return row;
  };
  return {
    enqueue: (sessionId: string, kind = 'tool_exec') =>
      only(sql<OldItem & { created: string }>`
    with place as materialized (
      select e.id, e.archived_at, case when ${kind}::text = 'tool_exec' and e.type = 'self_hosted' then 'wire' else 'process' end as lane
      from ${environments} e where e.id = ${environmentId}
    ), created as (
      insert into ${workItems} (id, environment_id, session_id, kind, lane, state, priority, not_before, metadata,
        traceparent, tracestate, created_at)
      select ${mintId('work')}, p.id, ${sessionId}, ${kind}::text, p.lane, 'queued', ${0}::smallint,
        ${null}::timestamptz, ${'{}'}::jsonb,
        ${null}, ${null}, clock_timestamp()
      from place p where p.archived_at is null
      on conflict (environment_id, session_id, kind) where state in ('queued', 'starting', 'active') do nothing
      returning ${columnsOf('work_items')}, lane, true as created
    ), covering as (
      select ${columnsOf('w')}, w.lane, false as created from ${workItems} w
      where w.environment_id = ${environmentId} and w.session_id = ${sessionId} and w.kind = ${kind}::text
        and w.state in ('queued', 'starting', 'active') and not exists (select from created)
    ), answer as (
      select ${columnsOf('c')}, c.lane, c.created from created c
      union all select ${columnsOf('v')}, v.lane, v.created from covering v
    )
    select exists (select from place)::text as found,
      exists (select from place p where p.archived_at is not null)::text as archived, a.created::text as created, a.lane, a.id, a.state,
      case when ${true}::boolean and a.created and a.lane = 'wire'
        then pg_notify(${database.channel}, ${environmentId})::text end as told
    from (select 1) one left join answer a on true`),

    /** An id that is null: nothing was handed out. */
    poll: (hash: string) =>
      only(sql<OldItem>`
    with taker as materialized (
      select t.fresh_id, t.token_hash, t.worker_id, t.reservation_ms, t.slot
      from unnest(${[mintId('work')]}::text[], ${[hash]}::text[],
        ${['old worker']}::text[], ${[60_000]}::integer[]
      ) with ordinality as t(fresh_id, token_hash, worker_id, reservation_ms, slot)
    ), abandoned as materialized (
      select w.seq from ${workItems} w
      where w.environment_id = ${environmentId} and w.lane = 'wire' and w.state = 'stopping'
        and (w.lease_expires_at is null or w.lease_expires_at <= clock_timestamp())
      order by w.seq limit 50 for update skip locked
    ), finalised as (
      update ${workItems} w
      set state = 'stopped', stopped_at = clock_timestamp(), stop_reason = 'abandoned', lease_expires_at = null
      from abandoned a where w.seq = a.seq
    ), free as materialized (
      select w.seq, w.id, w.priority, w.worker_id, w.sessions_token_hash, w.handed_out_at,
        coalesce(w.lapsed_state, w.state) as lapsed_state
      from ${workItems} w
      where w.environment_id = ${environmentId} and w.lane = 'wire' and w.state = 'queued'
        and (w.lease_expires_at is null or w.lease_expires_at <= clock_timestamp())
        and (w.not_before is null or w.not_before <= clock_timestamp())
      order by w.priority desc, w.seq
      limit (select count(*) from taker) for update skip locked
    ), lapsed as materialized (
      select w.seq, w.id, w.priority, w.worker_id, w.sessions_token_hash, w.handed_out_at, w.state as lapsed_state
      from ${workItems} w
      where w.environment_id = ${environmentId} and w.lane = 'wire' and w.state in ('starting', 'active')
        and w.lease_expires_at <= clock_timestamp()
      order by w.seq
      limit (select count(*) from taker) - (select count(*) from free) for update skip locked
    ), chosen as materialized (
      select c.seq, c.id, c.worker_id, c.sessions_token_hash, c.handed_out_at, c.lapsed_state,
        row_number() over (order by c.turn, c.priority desc, c.seq) as slot
      from (
        select f.seq, f.id, f.priority, f.worker_id, f.sessions_token_hash, f.handed_out_at, f.lapsed_state, 1 as turn
        from free f
        union all
        select l.seq, l.id, l.priority, l.worker_id, l.sessions_token_hash, l.handed_out_at, l.lapsed_state, 2 as turn
        from lapsed l
      ) c
    ), superseded as (
      insert into ${handOuts} (work_id, item_seq, environment_id, worker_id, sessions_token_hash, handed_out_at, reason)
      select c.id, c.seq, ${environmentId}, c.worker_id, c.sessions_token_hash, c.handed_out_at,
        case c.lapsed_state when 'queued' then 'reservation_lapsed' when 'starting' then 'startup_lease_lapsed'
          else 'lease_lapsed' end
      from chosen c where c.handed_out_at is not null
    ), handed_out as (
      update ${workItems} w
      set id = case when c.handed_out_at is null then w.id else t.fresh_id end,
        state = 'queued', worker_id = t.worker_id, sessions_token_hash = t.token_hash,
        handed_out_at = clock_timestamp(), hand_out_count = w.hand_out_count + 1, lapsed_state = null,
        lease_expires_at = clock_timestamp() + t.reservation_ms * interval '1 millisecond', lease_ttl_seconds = null,
        acknowledged_at = null, started_at = null, last_heartbeat = null, replaced_heartbeat = null
      from chosen c join taker t on t.slot = c.slot
      where w.seq = c.seq
      returning ${columnsOf('w')}, t.slot
    )
    select exists (select from ${environments} e where e.id = ${environmentId}) as found,
      h.slot::integer as slot, h.id, h.state
    from (select 1) one left join handed_out h on true`),

    ack: (id: string) =>
      only(sql<OldItem>`
    with wanted as materialized (
      select t.environment_id, t.id, t.lease_seconds, t.slot
      from unnest(${[environmentId]}::text[], ${[id]}::text[],
        ${[120]}::integer[]
      ) with ordinality as t(environment_id, id, lease_seconds, slot)
    ), current as materialized (
      select ${columnsOf('w')}, wanted.lease_seconds
      from ${workItems} w join wanted on wanted.id = w.id and wanted.environment_id = w.environment_id
      where w.lane = 'wire'
      order by w.seq for update of w
    ), changed as (
      update ${workItems} w
      set state = 'starting', acknowledged_at = clock_timestamp(),
        lease_expires_at = clock_timestamp() + c.lease_seconds * interval '1 second',
        handed_out_at = coalesce(w.handed_out_at, clock_timestamp()), hand_out_count = greatest(w.hand_out_count, 1)
      from current c where w.seq = c.seq and c.state = 'queued'
      returning ${columnsOf('w')}
    ), answer as (
      select ${columnsOf('n')} from changed n
      union all select ${columnsOf('c')} from current c where c.state <> 'queued'
    )
    select a.id, a.state
    from wanted left join answer a on a.id = wanted.id and a.environment_id = wanted.environment_id
    order by wanted.slot`),

    heartbeat: (id: string, expected: string) =>
      only(sql<{ state: string; decision: string; lastHeartbeat: string; leaseExtended: boolean }>`
    with wanted as materialized (
      select t.environment_id, t.id, t.expected, t.ttl_seconds, t.is_retry, t.slot
      from unnest(${[environmentId]}::text[], ${[id]}::text[],
        ${[expected]}::text[], ${[60]}::integer[],
        ${[false]}::boolean[]
      ) with ordinality as t(environment_id, id, expected, ttl_seconds, is_retry, slot)
    ), current as materialized (
      select w.seq, w.id, w.environment_id, w.state, w.last_heartbeat, w.lease_ttl_seconds, wanted.ttl_seconds,
        case
          when w.state = 'starting' and wanted.expected = 'NO_HEARTBEAT' then 'beat'
          when w.state = 'active' and wanted.expected = ${rfc3339(sql`w.last_heartbeat`)} then 'beat'
          when w.state = 'active' and wanted.is_retry
            and wanted.expected = coalesce(${rfc3339(sql`w.replaced_heartbeat`)}, 'NO_HEARTBEAT') then 'replay'
          when w.state = 'stopping' then 'over'
          when w.state = 'stopped' and (w.started_at is not null or w.lapsed_state = 'active') then 'over'
          else 'refused'
        end as decision
      from ${workItems} w join wanted on wanted.id = w.id and wanted.environment_id = w.environment_id
      where w.lane = 'wire'
      order by w.seq for update of w
    ), extended as (
      update ${workItems} w
      set state = 'active', started_at = coalesce(w.started_at, clock_timestamp()),
        last_heartbeat = case c.decision when 'beat'
          then greatest(clock_timestamp(), w.last_heartbeat + interval '1 microsecond') else w.last_heartbeat end,
        replaced_heartbeat = case c.decision when 'beat' then w.last_heartbeat else w.replaced_heartbeat end,
        lease_expires_at = clock_timestamp() + c.ttl_seconds * interval '1 second', lease_ttl_seconds = c.ttl_seconds
      from current c where w.seq = c.seq and c.decision in ('beat', 'replay')
      returning w.seq, w.state, w.last_heartbeat, w.lease_ttl_seconds
    )
    select wanted.expected, c.decision, coalesce(x.state, c.state) as state,
      ${rfc3339(sql`coalesce(x.last_heartbeat, c.last_heartbeat)`)} as "lastHeartbeat",
      coalesce(x.lease_ttl_seconds, c.lease_ttl_seconds) as "ttlSeconds", x.seq is not null as "leaseExtended"
    from wanted
      left join current c on c.id = wanted.id and c.environment_id = wanted.environment_id
      left join extended x on x.seq = c.seq
    order by wanted.slot`),

    stop: (id: string, force: boolean) =>
      only(sql<{ state: string; nextState: string | null }>`
    with wanted as materialized (
      select t.environment_id, t.id, t.force, t.reason, t.slot
      from unnest(${[environmentId]}::text[], ${[id]}::text[],
        ${[force]}::boolean[], ${['worker']}::text[]
      ) with ordinality as t(environment_id, id, force, reason, slot)
    ), current as materialized (
      select w.seq, w.id, w.environment_id, w.state, wanted.reason,
        case
          when w.state in ('queued', 'starting') then 'stopped'
          when w.state in ('active', 'stopping') and wanted.force then 'stopped'
          when w.state = 'active' then 'stopping'
        end as next_state
      from ${workItems} w join wanted on wanted.id = w.id and wanted.environment_id = w.environment_id
      where w.lane = 'wire'
      order by w.seq for update of w
    ), changed as (
      update ${workItems} w
      set state = c.next_state, stop_requested_at = coalesce(w.stop_requested_at, clock_timestamp()),
        stop_reason = coalesce(w.stop_reason, c.reason),
        stopped_at = case c.next_state when 'stopped' then clock_timestamp() end,
        lease_expires_at = case c.next_state when 'stopping' then w.lease_expires_at end
      from current c where w.seq = c.seq and c.next_state is not null
    )
    select c.state, c.next_state as "nextState"
    from wanted left join current c on c.id = wanted.id and c.environment_id = wanted.environment_id
    order by wanted.slot`),

    putBack: (id: string, hash: string) =>
      only(sql<{ id: string }>`
    update ${workItems} w
    set lease_expires_at = null,
      handed_out_at = case when ${true}::boolean then null else w.handed_out_at end,
      worker_id = case when ${true}::boolean then null else w.worker_id end,
      sessions_token_hash = case when ${true}::boolean then null else w.sessions_token_hash end,
      hand_out_count = case when ${true}::boolean then w.hand_out_count - 1 else w.hand_out_count end
    where w.id = ${id} and w.sessions_token_hash = ${hash} and w.state = 'queued'
      and w.lease_expires_at is not null
    returning w.id`),

    sweep: () =>
      only(sql<{ finalised: number; requeued: number; pruned: number }>`
    with turn as materialized (
      select pg_try_advisory_xact_lock(hashtextextended(${`${database.schema} sweep`}, 0)) as mine
    ), abandoned as materialized (
      select w.seq from ${workItems} w, turn
      where turn.mine and w.lane = 'wire' and w.state = 'stopping'
        and (w.lease_expires_at is null or w.lease_expires_at <= clock_timestamp())
      order by w.seq limit 500 for update of w skip locked
    ), finalised as (
      update ${workItems} w
      set state = 'stopped', stopped_at = clock_timestamp(), stop_reason = 'abandoned', lease_expires_at = null
      from abandoned a where w.seq = a.seq
      returning w.seq
    ), lapsed as materialized (
      select w.seq from ${workItems} w, turn
      where turn.mine and w.lane = 'wire' and w.state in ('starting', 'active')
        and w.lease_expires_at <= clock_timestamp() - 2 * interval '1 second'
      order by w.seq limit 500 for update of w skip locked
    ), requeued as (
      update ${workItems} w
      set state = 'queued', lapsed_state = case when w.lapsed_state = 'active' then 'active' else w.state end, lease_expires_at = null, lease_ttl_seconds = null,
        acknowledged_at = null, started_at = null, last_heartbeat = null, replaced_heartbeat = null
      from lapsed l where w.seq = l.seq
      returning w.environment_id
    ), finished as materialized (
      select w.seq from ${workItems} w, turn
      where turn.mine and w.state = 'stopped' and w.stopped_at < clock_timestamp() - ${7}::integer * interval '1 day'
      order by w.stopped_at limit 500 for update of w skip locked
    ), pruned as (
      delete from ${workItems} w using finished f where w.seq = f.seq returning w.seq
    ), forgotten as (
      delete from ${workerSightings} s using turn
      where turn.mine and s.seen_at < clock_timestamp() - 3600 * interval '1 second'
    )
    select (select count(*) from finalised)::integer as finalised, (select count(*) from requeued)::integer as requeued,
      (select count(*) from pruned)::integer as pruned,
      (select json_agg(distinct r.environment_id)::text from requeued r) as environments`),

    recordSighting: () =>
      database.rows(sql`
    insert into ${workerSightings} as s (environment_id, worker_id, seen_at)
    select t.environment_id, t.worker_id, clock_timestamp() - t.age_ms * interval '1 millisecond'
    from unnest(${[environmentId]}::text[], ${['old worker']}::text[],
      ${[0]}::integer[]
    ) as t(environment_id, worker_id, age_ms)
    join ${environments} e on e.id = t.environment_id
    order by t.environment_id, t.worker_id
    on conflict (environment_id, worker_id) do update set seen_at = greatest(s.seen_at, excluded.seen_at)`),

    issueKey: (hash: string) =>
      only(sql<{ id: string }>`
    insert into ${credentials} as c (id, environment_id, name, key_hash, expires_at)
    select ${mintId('key')}, ${environmentId}, 'old key', ${hash}, clock_timestamp() + 365 * interval '1 day'
    where ${environmentId}::text is null or exists (select from ${environments} e where e.id = ${environmentId})
    returning c.id`),

    findKey: (hash: string) =>
      database.rows(sql<{ environmentId: string }>`
    select environment_id as "environmentId", key_hash as "keyHash" from ${credentials}
    where key_hash = ${hash} and revoked_at is null and expires_at > clock_timestamp()`),
  };
}
