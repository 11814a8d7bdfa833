import { sql } from 'kysely';
import type { Database } from '../db/connect.ts';
import { environmentNotFound } from './errors.ts';
import { type ItemRow, itemAnswer, itemSource, toWorkItem, type WorkItem } from './items.ts';
import { checkText, LIMITS } from './limits.ts';

/**
 * Stops all unfinished items of a session at once, of every kind and lane, those that wind down included, with the reason
 * `cancelled`; their follow-ups are dropped. Its slots are free from then on, and a holder learns of it by its next heartbeat.
 * Answers what it stopped, oldest first; nothing when there was nothing. Needs no proof. Refuses: environment_not_found.
 */
export async function cancelSession(
  database: Database,
  environmentId: string,
  sessionId: string,
): Promise<readonly WorkItem[]> {
  checkText('environmentId', environmentId, LIMITS.idCharacters);
  checkText('sessionId', sessionId, LIMITS.sessionIdCharacters);
  const { workItems, environments } = database.names;
  const rows = await database.rows(sql<{ found: boolean; id: string | null } & Omit<ItemRow, 'id'>>`
    with current as materialized (
      select w.seq from ${workItems} w
      where w.environment_id = ${environmentId} and w.session_id = ${sessionId} and w.state <> 'stopped'
      order by w.seq for update
    ), cancelled as (
      update ${workItems} w
      set state = 'stopped', stop_requested_at = coalesce(w.stop_requested_at, clock_timestamp()),
        stopped_at = clock_timestamp(), stop_reason = 'cancelled', lease_expires_at = null, follow_up = null
      from current c where w.seq = c.seq
      returning ${itemSource('w')}
    )
    select exists (select from ${environments} e where e.id = ${environmentId}) as found, ${itemAnswer('w')}
    from (select 1) one left join cancelled w on true
    order by w.seq`);
  if (!rows[0]?.found) throw environmentNotFound(environmentId);
  return rows.flatMap((row) => (row.id === null ? [] : [toWorkItem({ ...row, id: row.id })]));
}
