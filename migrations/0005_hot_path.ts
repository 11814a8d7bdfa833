import { type Kysely, sql } from 'kysely';

/**
 * The indexes of what lives. They begin with an expression that no index of all items has, and those of what is queued say so in a way that the index of whatever is
 * live does not answer to: taken for equals, the planner has chosen one of those by statistics that were out of date, and read all that was ever
 * finished in an environment, or all that is live, to find what is queued there. `standsIn` and `isQueuedIn` in
 * `src/queue/items.ts` ask for them. A replica of the version before goes on serving, without them.
 */
export function up(schema: string) {
  return async (db: Kysely<unknown>): Promise<void> => {
    const t = (name: string) => sql.id(schema, name);
    const place = sql.raw("(environment_id || '')");
    const statements = [
      sql`drop index ${t('work_items_claim')}`,
      sql`create index work_items_claim on ${t('work_items')} (${place}, priority desc, seq)
        where (state = 'queued') is true and lane = 'wire'`,
      sql`drop index ${t('work_items_held')}`,
      // The state first: the background asks for it in all environments.
      sql`create index work_items_held on ${t('work_items')} (state, ${place}, seq)
        where state in ('starting', 'active', 'stopping') and lane = 'wire'`,
      sql`drop index ${t('work_items_waiting')}`,
      sql`create index work_items_waiting on ${t('work_items')} (${place}, created_at)
        where (state = 'queued') is true and lane = 'wire' and not_before is null`,
      sql`drop index ${t('work_items_waiting_due')}`,
      sql`create index work_items_waiting_due on ${t('work_items')} (${place}, not_before)
        where (state = 'queued') is true and lane = 'wire' and not_before is not null`,
      // Retention has its own since 0002, by environment.
      sql`drop index ${t('work_items_finished')}`,
      // Items that were enqueued together are handed out together: room for a second version of each, or those would be entered in every index.
      sql`alter table ${t('work_items')} set (fillfactor = 50)`,
    ];
    for (const statement of statements) await statement.execute(db);
  };
}
