import { type Kysely, sql } from 'kysely';

/**
 * The process lane: attempts, cancellation, first refusal. Only adds: a replica of the version before goes on serving. The two rules
 * of 0001 for indexes hold.
 */
export function up(schema: string) {
  return async (db: Kysely<unknown>): Promise<void> => {
    const t = (name: string) => sql.id(schema, name);
    const statements = [
      sql`alter table ${t('environments')} add fallback_after_ms integer`,
      sql`create index environments_fallback on ${t('environments')} (id) where fallback_after_ms is not null`,

      sql`alter table ${t('work_items')}
        add attempt integer not null default 1,
        add max_attempts integer,
        add next_attempt_at timestamptz,
        add hand_over_count integer not null default 0,
        add cancel_requested_at timestamptz,
        add last_error text`,
      // Nobody could take these before; those enqueued by the version before have no next_attempt_at, and are not many.
      sql`update ${t('work_items')} set next_attempt_at = not_before
        where lane = 'process' and state = 'queued' and not_before is not null`,
      // What waits for an instant stands apart, or claims would read past all of it.
      sql`create index work_items_ready on ${t('work_items')} (kind, priority desc, seq)
        where state = 'queued' and lane = 'process' and next_attempt_at is null`,
      sql`create index work_items_due on ${t('work_items')} (kind, next_attempt_at)
        where state = 'queued' and lane = 'process' and next_attempt_at is not null`,
      sql`create index work_items_claimed on ${t('work_items')} (kind, seq)
        where state = 'active' and lane = 'process'`,
      // Oldest first, whatever the priority: what has waited for long enough. Here, too, what is for later stands apart.
      sql`create index work_items_waiting on ${t('work_items')} (environment_id, created_at)
        where state = 'queued' and lane = 'wire' and not_before is null`,
      sql`create index work_items_waiting_due on ${t('work_items')} (environment_id, not_before)
        where state = 'queued' and lane = 'wire' and not_before is not null`,
    ];
    for (const statement of statements) await statement.execute(db);
  };
}
