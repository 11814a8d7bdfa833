import { sql } from 'kysely';
import type { Database } from '../db/connect.ts';
import { checkRef, notFound, type WorkRef } from './items.ts';

/** The input an item was enqueued with, any JSON value; null without one. Also in the process lane. Refuses: not_found. */
export async function readInput(database: Database, { environmentId, id }: WorkRef): Promise<unknown> {
  checkRef({ environmentId, id });
  const { workItems, workInputs, handOuts } = database.names;
  const [row] = await database.rows(sql<{ id: string | null; input: string | null; superseded: boolean }>`
    select w.id, i.input,
      exists (select from ${handOuts} h where h.work_id = ${id} and h.environment_id = ${environmentId}) as superseded
    from (select 1) one left join ${workItems} w on w.id = ${id} and w.environment_id = ${environmentId}
      left join ${workInputs} i on i.item_seq = w.seq`);
  if (row === undefined || row.id === null) throw notFound(id, row?.superseded ?? false);
  return row.input === null ? null : JSON.parse(row.input);
}
