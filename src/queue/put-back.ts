import { sql } from 'kysely';
import type { Database } from '../db/connect.ts';
import { parseSessionsToken } from './sessions-token.ts';

/**
 * Puts an item back whose poll's client went away. The guard is the hand-out itself: the token's hash on a row that is still
 * queued under its reservation, so an item that was acked, stopped, handed on or put back meanwhile is left alone, also when
 * the sweep has made it queued again: by then its id is known, and must not be kept. When no byte of the answer was given
 * to the socket (`unseen`), the hand-out never happened, nor was it the last one, and the id stays; else the reservation just ends, and the next
 * hand-out mints a new id (design §5). True when it was put back.
 */
export async function putBack(database: Database, sessionsToken: string, unseen: boolean): Promise<boolean> {
  const token = parseSessionsToken(sessionsToken);
  if (token === undefined) return false;
  const { workItems } = database.names;
  const rows = await database.rows(sql<{ id: string }>`
    update ${workItems} w
    set lease_expires_at = null,
      handed_out_at = case when ${unseen} then null else w.handed_out_at end,
      worker_id = case when ${unseen} then null else w.worker_id end,
      sessions_token_hash = case when ${unseen} then null else w.sessions_token_hash end,
      hand_out_count = case when ${unseen} then w.hand_out_count - 1 else w.hand_out_count end,
      is_last_hand_out = w.is_last_hand_out and not ${unseen}
    where w.id = ${token.workId} and w.sessions_token_hash = ${token.hash} and w.state = 'queued'
      and w.lease_expires_at is not null
    returning w.id`);
  return rows.length > 0;
}
