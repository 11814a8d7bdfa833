import { type Kysely, sql } from 'kysely';

/**
 * What its holder says of an item: given back, done, failed. Only adds, and lets hand-outs end for two reasons more: a replica of the
 * version before goes on serving. The two rules of 0001 for indexes hold.
 */
export function up(schema: string) {
  return async (db: Kysely<unknown>): Promise<void> => {
    const t = (name: string) => sql.id(schema, name);
    const statements = [
      // Null: the process's.
      sql`alter table ${t('environments')} add max_attempts integer`,
      // Null: nobody said.
      sql`alter table ${t('work_items')} add outcome text check (outcome in ('succeeded', 'failed'))`,
      // Not valid: what is there keeps a narrower rule already, and reading all of it would hold up polls.
      sql`alter table ${t('hand_outs')}
        drop constraint hand_outs_reason_check,
        add constraint hand_outs_reason_check
          check (reason in ('reservation_lapsed', 'startup_lease_lapsed', 'lease_lapsed', 'released', 'failed')) not valid`,
      // Apart from the item, as inputs are.
      sql`create table ${t('work_results')} (
        item_seq bigint primary key references ${t('work_items')} (seq) on delete cascade,
        result text not null
      )`,
    ];
    for (const statement of statements) await statement.execute(db);
  };
}
