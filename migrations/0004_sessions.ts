import { type Kysely, sql } from 'kysely';

/**
 * The session relay. A session's row holds all that an append decides by: who has locked it needs nothing else. Events are only ever
 * added, numbered within their session under that lock, so that a number that is committed never comes after a higher one.
 */
export function up(schema: string) {
  return async (db: Kysely<unknown>): Promise<void> => {
    const t = (name: string) => sql.id(schema, name);
    const statements = [
      sql`create table ${t('sessions')} (
        id text primary key,
        environment_id text not null references ${t('environments')} (id),
        title text,
        metadata jsonb not null default '{}',
        agent text not null,
        status text not null check (status in ('idle', 'running', 'terminated')),
        stop_reason text,
        created_at timestamptz not null default clock_timestamp(),
        updated_at timestamptz not null default clock_timestamp(),
        archived_at timestamptz,
        last_seq bigint not null default 0,
        last_event_at timestamptz not null default clock_timestamp(),
        open_calls text not null default '[]',
        worker_tools text not null default '[]',
        needs_worker boolean not null default false,
        is_held boolean not null default false,
        arm_count integer not null default 0
      ) with (fillfactor = 70)`,
      sql`create index sessions_list on ${t('sessions')} (created_at, id)`,
      sql`create index sessions_environment on ${t('sessions')} (environment_id, created_at, id)`,
      sql`create index sessions_unserved on ${t('sessions')} (id) where needs_worker and not is_held`,
      sql`create index sessions_running on ${t('sessions')} (last_event_at) where status = 'running'`,
      sql`create index sessions_archived on ${t('sessions')} (archived_at) where archived_at is not null`,

      // The event as it is answered: text, since jsonb would give it back as something else. A page is bounded by its bytes.
      sql`create table ${t('session_events')} (
        session_id text not null references ${t('sessions')} (id) on delete cascade,
        seq bigint not null,
        id text not null unique,
        type text not null,
        answers text,
        processed_at timestamptz not null,
        bytes integer not null,
        event text not null,
        primary key (session_id, seq)
      )`,
      sql`create index session_events_answers on ${t('session_events')} (answers) where answers is not null`,

      // Whether an operator stopped a session's worker: `stop_reason` ends as abandoned where nobody wound it down.
      sql`alter table ${t('work_items')} add column stop_requested_by text`,
    ];
    for (const statement of statements) await statement.execute(db);
  };
}
