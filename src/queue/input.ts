import { sql } from 'kysely';
import type { Database } from '../db/connect.ts';
import { checkRef, notFound, presentId, type WorkRef } from './items.ts';

/** The input an item was enqueued with, any JSON value; null without one. Also in the process lane. Refuses: not_found. */
export async function readInput(database: Database, { environmentId, id }: WorkRef): Promise<unknown> {
  checkRef({ environmentId, id });
  const { workItems, workInputs } = database.names;
  const [row] = await database.rows(sql<{ id: string | null; input: string | null; presentId: string | null }>`
    select w.id, i.input, ${presentId(database.names, sql`${environmentId}`, sql`${id}`)} as "presentId"
    from (select 1) one left join ${workItems} w on w.id = ${id} and w.environment_id = ${environmentId}
      left join ${workInputs} i on i.item_seq = w.seq`);
  if (row === undefined || row.id === null) throw notFound(id, row?.presentId);
  return row.input === null ? null : JSON.parse(row.input);
}
