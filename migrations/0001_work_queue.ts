import { type Kysely, sql } from 'kysely';

/**
 * The queue (design §4). Two rules for whoever adds an index to `work_items`: its columns are what the claim orders by,
 * and neither a column nor a predicate may name what a heartbeat writes (last_heartbeat, replaced_heartbeat,
 * lease_expires_at, lease_ttl_seconds, started_at), or heartbeats stop being HOT updates.
 */
export function up(schema: string) {
  return async (db: Kysely<unknown>): Promise<void> => {
    const t = (name: string) => sql.id(schema, name);
    const statements = [
      sql`create table ${t('environments')} (
        id text primary key,
        name text not null,
        description text,
        type text not null check (type in ('self_hosted', 'cloud')),
        metadata jsonb not null default '{}',
        created_at timestamptz not null default clock_timestamp(),
        updated_at timestamptz not null default clock_timestamp(),
        archived_at timestamptz
      )`,
      sql`create unique index environments_live_name on ${t('environments')} (name) where archived_at is null`,

      sql`create table ${t('credentials')} (
        id text primary key,
        environment_id text references ${t('environments')} (id) on delete cascade,
        name text not null,
        key_hash text not null unique,
        created_at timestamptz not null default clock_timestamp(),
        expires_at timestamptz not null,
        revoked_at timestamptz
      )`,
      sql`create index credentials_environment on ${t('credentials')} (environment_id)`,

      sql`create table ${t('work_items')} (
        seq bigint generated always as identity primary key,
        id text not null unique,
        environment_id text not null references ${t('environments')} (id),
        session_id text not null,
        kind text not null check (kind in ('model_turn', 'tool_exec', 'web_exec', 'outputs_harvest', 'mcp_exec')),
        lane text not null check (lane in ('wire', 'process')),
        state text not null check (state in ('queued', 'starting', 'active', 'stopping', 'stopped')),
        priority smallint not null default 0,
        not_before timestamptz,
        metadata jsonb not null default '{}',
        traceparent text,
        tracestate text,
        created_at timestamptz not null default clock_timestamp(),
        hand_out_count integer not null default 0,
        handed_out_at timestamptz,
        worker_id text,
        sessions_token_hash text,
        lapsed_state text,
        lease_expires_at timestamptz,
        lease_ttl_seconds integer,
        acknowledged_at timestamptz,
        started_at timestamptz,
        last_heartbeat timestamptz,
        replaced_heartbeat timestamptz,
        stop_requested_at timestamptz,
        stopped_at timestamptz,
        stop_reason text
      ) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500)`,
      sql`create unique index work_items_live on ${t('work_items')} (environment_id, session_id, kind)
        where state in ('queued', 'starting', 'active')`,
      sql`create index work_items_claim on ${t('work_items')} (environment_id, priority desc, seq)
        where state = 'queued' and lane = 'wire'`,
      sql`create index work_items_held on ${t('work_items')} (environment_id, state, seq)
        where state in ('starting', 'active', 'stopping') and lane = 'wire'`,
      sql`create index work_items_list on ${t('work_items')} (environment_id, created_at desc, seq desc)
        where lane = 'wire'`,
      sql`create index work_items_finished on ${t('work_items')} (stopped_at) where state = 'stopped'`,

      sql`create table ${t('hand_outs')} (
        work_id text primary key,
        item_seq bigint not null references ${t('work_items')} (seq) on delete cascade,
        environment_id text not null,
        worker_id text,
        sessions_token_hash text,
        handed_out_at timestamptz not null,
        superseded_at timestamptz not null default clock_timestamp(),
        reason text not null check (reason in ('reservation_lapsed', 'startup_lease_lapsed', 'lease_lapsed'))
      )`,
      sql`create index hand_outs_item on ${t('hand_outs')} (item_seq)`,

      sql`create table ${t('worker_sightings')} (
        environment_id text not null references ${t('environments')} (id) on delete cascade,
        worker_id text not null,
        seen_at timestamptz not null,
        primary key (environment_id, worker_id)
      ) with (fillfactor = 70)`,
    ];
    for (const statement of statements) await statement.execute(db);
  };
}
