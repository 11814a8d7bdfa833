import { sql } from 'kysely';
import type { Database } from '../db/connect.ts';
import type { WorkState } from '../queue/items.ts';
import { parseSessionsToken } from '../queue/sessions-token.ts';
import { isEqual } from './credentials.ts';

export type Introspection =
  | { readonly isActive: false }
  | {
      readonly isActive: true;
      readonly workId: string;
      readonly environmentId: string;
      readonly sessionId: string;
      readonly state: Exclude<WorkState, 'stopped'>;
    };

/**
 * Whether a sessions token is that of a hand-out that goes on: of the present one, under a live lease (its reservation included),
 * not stopped. Any other text is not active. Asks the database each time, and changes nothing.
 */
export async function introspect(database: Database, text: string): Promise<Introspection> {
  const token = parseSessionsToken(text);
  if (token === undefined) return { isActive: false };
  const { workItems } = database.names;
  const [row] = await database.rows(sql<{
    workId: string;
    environmentId: string;
    sessionId: string;
    state: Exclude<WorkState, 'stopped'>;
    tokenHash: string | null;
  }>`
    select w.id as "workId", w.environment_id as "environmentId", w.session_id as "sessionId", w.state,
      w.sessions_token_hash as "tokenHash"
    from ${workItems} w
    where w.id = ${token.workId} and w.state <> 'stopped' and w.lease_expires_at > clock_timestamp()`);
  if (row === undefined || !isEqual(row.tokenHash ?? '', token.hash)) return { isActive: false };
  const { tokenHash: _, ...holding } = row;
  return { isActive: true, ...holding };
}
