import { sql } from 'kysely';
import type { Database } from '../db/connect.ts';

const ROWS_PER_STATEMENT_MAX = 50;
/** Far longer than a statement may take: whoever has drawn a token has written it by then, or never will. */
const KEPT_SECONDS = 3_600;

export type LocksPruned = { readonly pruned: number; readonly more: boolean };

/**
 * Removes locks that expired or were released an hour ago. Bounded, and skips what others hold. statement_timestamp: what is volatile
 * would keep the index out.
 */
export async function pruneLocks(database: Database): Promise<LocksPruned> {
  const { locks } = database.names;
  const pruned = await database.rows(sql`
    with old as materialized (
      select l.environment_id, l.name from ${locks} l
      where l.expires_at < statement_timestamp() - ${sql.lit(KEPT_SECONDS)} * interval '1 second'
      order by l.expires_at limit ${sql.lit(ROWS_PER_STATEMENT_MAX)} for update of l skip locked
    )
    delete from ${locks} l using old o where l.environment_id = o.environment_id and l.name = o.name returning l.name`);
  return { pruned: pruned.length, more: pruned.length >= ROWS_PER_STATEMENT_MAX };
}
