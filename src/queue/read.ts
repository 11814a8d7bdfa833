import { sql } from 'kysely';
import type { Database } from '../db/connect.ts';
import { parseCursor, SEQ, toPage } from './cursor.ts';
import { environmentNotFound } from './errors.ts';
import {
  type ItemRow,
  itemAnswer,
  itemSource,
  notFound,
  presentId,
  toWorkItem,
  type WorkItem,
  type WorkRef,
} from './items.ts';
import { checkInteger, LIMITS } from './limits.ts';

/** One item by its present id. Refuses: not_found. */
export async function retrieve(database: Database, { environmentId, id }: WorkRef): Promise<WorkItem> {
  const { workItems } = database.names;
  const [row] = await database.rows(sql<{ presentId: string | null; id: string | null } & Omit<ItemRow, 'id'>>`
    select ${itemAnswer('w')},
      ${presentId(database.names, sql`${environmentId}`, sql`${id}`)} as "presentId"
    from (select 1) one
      left join ${workItems} w on w.id = ${id} and w.environment_id = ${environmentId} and w.lane = 'wire'`);
  if (row === undefined || row.id === null) throw notFound(id, row?.presentId);
  return toWorkItem({ ...row, id: row.id });
}

export type WorkPage = { readonly items: readonly WorkItem[]; readonly nextPage: string | null };

/**
 * A page of an environment's items on the wire lane, newest first by (createdAt, seq): ids rotate, these do not.
 * `limit` 1 to 1000. Refuses: environment_not_found; invalid_request for a cursor that no page gave out.
 */
export async function list(
  database: Database,
  environmentId: string,
  { limit, page }: { limit: number; page?: string | undefined },
): Promise<WorkPage> {
  checkInteger('limit', limit, 1, LIMITS.pageItems);
  const { workItems, environments } = database.names;
  const after = page === undefined ? undefined : parseCursor(page, SEQ);
  const rows = await database.rows(sql<{ found: boolean; id: string | null } & Omit<ItemRow, 'id'>>`
    select exists (select from ${environments} e where e.id = ${environmentId}) as found, ${itemAnswer('w')}
    from (select 1) one left join lateral (
      select ${itemSource('w')} from ${workItems} w
      where w.environment_id = ${environmentId} and w.lane = 'wire'
        ${after === undefined ? sql`` : sql`and (w.created_at, w.seq) < (${after.createdAt}::timestamptz, ${after.key}::bigint)`}
      order by w.created_at desc, w.seq desc limit ${limit + 1}
    ) w on true
    order by w.created_at desc, w.seq desc`);
  if (!rows[0]?.found) throw environmentNotFound(environmentId);
  const items = rows.flatMap((row) => (row.id === null ? [] : [toWorkItem({ ...row, id: row.id })]));
  return toPage(items, limit, ({ createdAt, seq }) => ({ createdAt, key: seq }));
}
