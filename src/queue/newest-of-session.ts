import { sql } from 'kysely';
import type { Database } from '../db/connect.ts';

/** The id of a session's newest item in an environment, of every kind and in any state; undefined when it has none there. */
export async function newestOfSession(
  database: Database,
  environmentId: string,
  sessionId: string,
): Promise<string | undefined> {
  const { workItems } = database.names;
  const [row] = await database.rows(sql<{ id: string }>`
    select w.id from ${workItems} w where w.environment_id = ${environmentId} and w.session_id = ${sessionId}
    order by w.created_at desc, w.seq desc limit 1`);
  return row?.id;
}
