import { type Kysely, sql } from 'kysely';

/**
 * Settings, pauses, keys that can be changed, request ids, inputs, retried writes, audit. Only adds: a replica of the version
 * before goes on serving. The two rules of 0001 for indexes hold.
 */
export function up(schema: string) {
  return async (db: Kysely<unknown>): Promise<void> => {
    const t = (name: string) => sql.id(schema, name);
    const statements = [
      // Null: the process's.
      sql`alter table ${t('environments')}
        add paused_at timestamptz,
        add lease_ttl_seconds integer,
        add lease_ttl_max_seconds integer,
        add startup_lease_seconds integer,
        add reclaim_older_than_ms integer,
        add max_hand_outs integer,
        add retention_days integer`,

      // Deleting an environment revokes its keys: what is gone could not be told to the replicas that trust it.
      sql`alter table ${t('credentials')}
        drop constraint credentials_environment_id_fkey,
        add role text not null default 'operator' check (role in ('operator', 'read_only')),
        add min_queued_age_ms integer,
        add hint text,
        add last_used_at timestamptz,
        add changed_at timestamptz`,
      sql`create index credentials_changed on ${t('credentials')} (greatest(changed_at, revoked_at))`,

      sql`alter table ${t('work_items')}
        add max_hand_outs integer,
        add is_last_hand_out boolean not null default false,
        add follow_up jsonb,
        add requeued_from text,
        add lapsed_at timestamptz,
        add lapsed_acknowledged_at timestamptz,
        add lapsed_started_at timestamptz,
        add lapsed_heartbeat timestamptz`,
      sql`create index work_items_last_hand_out on ${t('work_items')} (seq)
        where is_last_hand_out and state = 'queued' and lane = 'wire'`,
      sql`create index work_items_session on ${t('work_items')} (environment_id, session_id, created_at desc, seq desc)`,
      sql`create index work_items_list_process on ${t('work_items')} (environment_id, created_at desc, seq desc)
        where lane = 'process'`,
      sql`create index work_items_set_aside on ${t('work_items')} (environment_id, created_at desc, seq desc)
        where state = 'stopped' and stop_reason in ('exhausted', 'failed')`,
      sql`create index work_items_retention on ${t('work_items')} (environment_id, stopped_at) where state = 'stopped'`,
      sql`create unique index work_items_requeued_from on ${t('work_items')} (requeued_from)
        where requeued_from is not null`,

      sql`alter table ${t('hand_outs')}
        add acknowledged_at timestamptz,
        add started_at timestamptz,
        add last_heartbeat timestamptz,
        add lapsed_at timestamptz`,
      sql`create index hand_outs_environment on ${t('hand_outs')} (environment_id, superseded_at)`,

      // Apart from the item, which every heartbeat writes anew.
      sql`create table ${t('work_inputs')} (
        item_seq bigint primary key references ${t('work_items')} (seq) on delete cascade,
        input text not null
      )`,

      sql`create table ${t('request_ids')} (
        environment_id text not null,
        request_id text not null,
        item_seq bigint not null references ${t('work_items')} (seq) on delete cascade,
        primary key (environment_id, request_id)
      )`,
      sql`create index request_ids_item on ${t('request_ids')} (item_seq)`,

      sql`create table ${t('idempotency_keys')} (
        caller text not null,
        key text not null,
        request_hash text not null,
        answer text not null,
        created_at timestamptz not null default clock_timestamp(),
        primary key (caller, key)
      )`,
      sql`create index idempotency_keys_created on ${t('idempotency_keys')} (created_at)`,

      sql`create table ${t('audit_log')} (
        seq bigint generated always as identity primary key,
        at timestamptz not null default clock_timestamp(),
        key_id text not null,
        key_name text not null,
        action text not null,
        environment_id text,
        target text,
        status integer not null,
        request_id text not null
      )`,
      sql`create index audit_log_at on ${t('audit_log')} (at)`,
      sql`create index audit_log_environment on ${t('audit_log')} (environment_id, seq desc)`,

      // What was refused to workers, counted by the minute: what diagnosis goes by.
      sql`create table ${t('refusals')} (
        environment_id text not null references ${t('environments')} (id) on delete cascade,
        refusal text not null check (refusal in ('credential', 'heartbeat')),
        minute timestamptz not null,
        count integer not null,
        last_at timestamptz not null,
        primary key (environment_id, refusal, minute)
      )`,
    ];
    for (const statement of statements) await statement.execute(db);
  };
}
