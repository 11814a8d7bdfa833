import { sql } from 'kysely';
import type { Database } from '../../src/db/connect.ts';

/** What Postgres is started with, for its statements to be counted. */
export const COUNTING = ['shared_preload_libraries=pg_stat_statements'];

/** How many statements ran in a database so far; `asker` is connected to another, so its own are none of them. */
export async function countStatements(asker: Database, name: string): Promise<number> {
  const [row] = await asker.rows(sql<{ calls: number }>`
    select coalesce(sum(s.calls), 0)::integer as calls from pg_stat_statements s join pg_database d on d.oid = s.dbid
    where d.datname = ${name}`);
  return row?.calls ?? Number.NaN;
}
