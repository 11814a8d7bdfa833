import { type Kysely, sql } from 'kysely';

/**
 * Single-flight locks. A released lock keeps its row for a while, with its expiry in the past: the next token is then drawn by whoever has
 * locked the row, so that later holders have higher ones. Only adds: a replica of the version before goes on serving.
 */
export function up(schema: string) {
  return async (db: Kysely<unknown>): Promise<void> => {
    const t = (name: string) => sql.id(schema, name);
    const statements = [
      sql`create sequence ${t('lock_tokens')} as bigint`,
      sql`create table ${t('locks')} (
        environment_id text not null references ${t('environments')} (id) on delete cascade,
        name text not null,
        owner text not null,
        token bigint not null,
        acquired_at timestamptz not null,
        expires_at timestamptz not null,
        primary key (environment_id, name)
      )`,
      sql`create index locks_expires on ${t('locks')} (expires_at)`,
    ];
    for (const statement of statements) await statement.execute(db);
  };
}
