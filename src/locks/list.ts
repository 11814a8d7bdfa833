import { sql } from 'kysely';
import type { Database } from '../db/connect.ts';
import { parseCursor, SEQ, toPage } from '../queue/cursor.ts';
import { environmentNotFound } from '../queue/errors.ts';
import { checkInteger, checkText, LIMITS } from '../queue/limits.ts';
import { LOCK_COLUMNS, type Lock, type LockRow, lockFields, toLock } from './lock.ts';

export type LockPage = { readonly items: readonly Lock[]; readonly nextPage: string | null };

/**
 * The locks that are held now, the last acquired first. `limit` 1 to 1000. Refuses: environment_not_found, invalid_request for a cursor that no page gave out.
 * statement_timestamp: what is volatile would keep the index out.
 */
export async function listLocks(
  database: Database,
  environmentId: string,
  { limit = LIMITS.pageItemsDefault, page }: { limit?: number | undefined; page?: string | undefined } = {},
): Promise<LockPage> {
  checkText('environmentId', environmentId, LIMITS.idCharacters);
  checkInteger('limit', limit, 1, LIMITS.pageItems);
  const after = page === undefined ? undefined : parseCursor(page, SEQ);
  const { environments, locks } = database.names;
  const rows = await database.rows(sql<LockRow | { [Key in keyof LockRow]: null }>`
    with live as materialized (
      select ${LOCK_COLUMNS} from ${locks} l
      where l.environment_id = ${environmentId} and l.expires_at > statement_timestamp()
        ${after === undefined ? sql`` : sql`and (l.acquired_at, l.token) < (${after.createdAt}::timestamptz, ${after.key}::bigint)`}
      order by l.acquired_at desc, l.token desc limit ${limit + 1}::integer
    )
    select ${lockFields(sql`v`)} from ${environments} e left join live v on true
    where e.id = ${environmentId} order by v.acquired_at desc, v.token desc`);
  if (rows.length === 0) throw environmentNotFound(environmentId);
  const found = rows.flatMap((row) => (row.name === null ? [] : [toLock(environmentId, row)]));
  return toPage(found, limit, ({ acquiredAt, token }) => ({ createdAt: acquiredAt, key: `${token}` }));
}
