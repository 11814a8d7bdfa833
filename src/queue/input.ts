import { type RawBuilder, sql } from 'kysely';
import type { Database } from '../db/connect.ts';
import { checkRef, notFound, presentId, type WorkRef } from './items.ts';

/** The input an item was enqueued with, any JSON value; null without one. Also in the process lane. Refuses: not_found. */
export const readInput = (database: Database, ref: WorkRef): Promise<unknown> =>
  readBeside(database, ref, { table: database.names.workInputs, column: 'input' });

/** What its holder left as it succeeded, any JSON value; null without one. Also of the process lane. Refuses: not_found. */
export const readResult = (database: Database, ref: WorkRef): Promise<unknown> =>
  readBeside(database, ref, { table: database.names.workResults, column: 'result' });

async function readBeside(
  database: Database,
  { environmentId, id }: WorkRef,
  { table, column }: { table: RawBuilder<unknown>; column: string },
): Promise<unknown> {
  checkRef({ environmentId, id });
  const { workItems } = database.names;
  const [row] = await database.rows(sql<{ id: string | null; value: string | null; presentId: string | null }>`
    select w.id, ${sql.ref(`b.${column}`)} as value, ${presentId(database.names, sql`${environmentId}`, sql`${id}`)} as "presentId"
    from (select 1) one left join ${workItems} w on w.id = ${id} and w.environment_id = ${environmentId}
      left join ${table} b on b.item_seq = w.seq`);
  if (row === undefined || row.id === null) throw notFound(id, row?.presentId);
  return row.value === null ? null : JSON.parse(row.value);
}
