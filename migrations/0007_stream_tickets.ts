import { type Kysely, sql } from 'kysely';

/** Tickets for event streams, a minute each. Only adds: a replica of the version before goes on serving, and knows none of them. */
export function up(schema: string) {
  return async (db: Kysely<unknown>): Promise<void> => {
    const t = (name: string) => sql.id(schema, name);
    const statements = [
      // No reference to what they are for: one that outlives its environment or its key opens nothing, and goes within the minute.
      sql`create table ${t('stream_tickets')} (
        ticket_hash text primary key,
        environment_id text not null,
        key_hash text not null,
        expires_at timestamptz not null
      )`,
      sql`create index stream_tickets_expiry on ${t('stream_tickets')} (expires_at)`,
    ];
    for (const statement of statements) await statement.execute(db);
  };
}
