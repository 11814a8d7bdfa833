import { sql } from 'kysely';
import { type Database, within } from '../db/connect.ts';
import { environmentNotFound, QueueError } from './errors.ts';
import { type ItemRow, itemAnswer, itemSource, toWorkItem, type WorkItem } from './items.ts';
import { checkText, LIMITS } from './limits.ts';

/** The last one sees nothing left. What ends beside this leaves a successor at most once a look; who is faster is a caller's loop. */
const LOOKS_MAX = 5;

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
  return database.transaction(async (transaction) => {
    const cancelled: WorkItem[] = [];
    for (let look = 0; look < LOOKS_MAX; look++) {
      const { items, seen } = await cancelSeen(within(database, transaction), environmentId, sessionId);
      if (seen === 0) return cancelled;
      cancelled.push(...items);
    }
    throw new QueueError('unavailable', `the session's items ended ${LOOKS_MAX} times meanwhile, try again`);
  });
}

/**
 * Of what was `seen`, some may have left its slot before its row was free, to a successor that this look could not see. All text: the
 * connection may be a caller's.
 */
async function cancelSeen(
  database: Database,
  environmentId: string,
  sessionId: string,
): Promise<{ items: WorkItem[]; seen: number }> {
  const { workItems, environments } = database.names;
  const rows = await database.rows(sql<
    { found: 'true' | 'false'; seen: string; id: string | null } & Omit<ItemRow, 'id'>
  >`
    with seen as materialized (
      select w.seq from ${workItems} w
      where w.environment_id = ${environmentId} and w.session_id = ${sessionId} and w.state <> 'stopped'
    ), current as materialized (
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
    select exists (select from ${environments} e where e.id = ${environmentId})::text as found,
      (select count(*) from seen)::text as seen, ${itemAnswer('w')}
    from (select 1) one left join cancelled w on true
    order by w.seq`);
  if (rows[0]?.found !== 'true') throw environmentNotFound(environmentId);
  const items = rows.flatMap((row) => (row.id === null ? [] : [toWorkItem({ ...row, id: row.id })]));
  return { items, seen: Number(rows[0].seen) };
}
