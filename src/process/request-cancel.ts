import { sql } from 'kysely';
import type { Database } from '../db/connect.ts';
import { QueueError } from '../queue/errors.ts';
import { successors } from '../queue/follow-up.ts';
import { checkRef, tellOf, type WorkRef, type WorkState } from '../queue/items.ts';
import { topicsOf } from '../queue/topics.ts';

export type CancelRequested = {
  /** False when the item had ended, for another reason. */
  readonly accepted: boolean;
  readonly state: WorkState;
  readonly topics: readonly string[];
};

/**
 * Asks for an item of the process lane to end. One that is queued ends at once, as `cancelled`; who holds one is told by the next renewal,
 * in the same statement, and it ends as `cancelled` when it is failed, given back or taken over. Asking twice is asking once. Its
 * follow-up comes all the same. Needs no proof. Refuses: not_found.
 */
export async function requestCancel(database: Database, { environmentId, id }: WorkRef): Promise<CancelRequested> {
  checkRef({ environmentId, id });
  const { names, channel, isTransaction } = database;
  const [row] = await database.rows(sql<{ state: WorkState; accepted: 'true' | 'false'; successors: string | null }>`
    with current as materialized (
      select w.seq, w.state, w.stop_reason from ${names.workItems} w
      where w.id = ${id} and w.environment_id = ${environmentId} and w.lane = 'process' for no key update
    ), asked as (
      update ${names.workItems} w set cancel_requested_at = clock_timestamp()
      from current c where w.seq = c.seq and c.state = 'active' and w.cancel_requested_at is null
    ), ended as (
      update ${names.workItems} w
      set state = 'stopped', cancel_requested_at = clock_timestamp(), stop_requested_at = clock_timestamp(),
        stopped_at = clock_timestamp(), stop_reason = 'cancelled'
      from current c where w.seq = c.seq and c.state = 'queued'
      returning w.seq, w.environment_id, w.session_id, w.kind, w.follow_up
    ), ${successors(names, 'ended')}
    select coalesce((select 'stopped' from ended), c.state) as state,
      (c.state <> 'stopped' or c.stop_reason = 'cancelled')::text as accepted,
      (select json_agg(s)::text from successor s) as successors,
      ${isTransaction ? tellOf(channel, 'successor') : sql`null`} as told
    from current c`);
  if (row === undefined) {
    throw new QueueError('not_found', `work item ${id} is not one that is claimed here: what workers poll is stopped`);
  }
  return { accepted: row.accepted === 'true', state: row.state, topics: topicsOf(row.successors) };
}
