import { sql } from 'kysely';
import type { Database } from '../db/connect.ts';
import { fixed, givenLater } from '../db/sql.ts';
import { QueueError } from './errors.ts';
import { successors } from './follow-up.ts';
import type { WorkRef, WorkState } from './items.ts';
import {
  type HELD,
  type Locking,
  isPolled,
  isThere,
  lockClause,
  type Missing,
  missing,
  missingColumns,
  readShape,
  type SetShape,
  setShape,
} from './sets.ts';

export type StopRequest = WorkRef & {
  /** True ends an item at once; false lets an active one wind down under its lease. */
  readonly force: boolean;
  readonly reason: 'worker' | 'operator';
};

export type Stopped = {
  readonly state: 'stopping' | 'stopped';
  /** True when its follow-up was enqueued with it: there is work to be offered. */
  readonly isFollowed: boolean;
};

const statement = fixed<readonly StopRequest[], Row, SetShape>((value, names, shape) => {
  const [locking, extent] = readShape(shape);
  const { workItems } = names;
  return sql`
    with wanted as materialized (
      select t.environment_id, t.id, t.force, t.reason, t.slot
      from ${givenLater(
        value,
        (requests) => requests,
        {
          environment_id: ['text', (r) => r.environmentId],
          id: ['text', (r) => r.id],
          force: ['boolean', (r) => r.force],
          reason: ['text', (r) => r.reason],
        },
        extent,
      )}
    ), current as materialized (
      select wanted.slot, w.seq, w.environment_id, w.session_id, w.kind, w.lane, w.state, w.follow_up, wanted.reason,
        case
          when w.state in ('queued', 'starting') then 'stopped'
          when w.state in ('active', 'stopping') and wanted.force then 'stopped'
          when w.state = 'active' then 'stopping'
        end as next_state
      from ${workItems} w join wanted on wanted.id = w.id
      where ${isThere} and ${isPolled}
      order by w.seq ${lockClause(locking)}
    ), changed as (
      update ${workItems} w
      set state = c.next_state, stop_requested_at = coalesce(w.stop_requested_at, clock_timestamp()),
        stop_reason = coalesce(w.stop_reason, c.reason), stop_requested_by = coalesce(w.stop_requested_by, c.reason),
        stopped_at = case c.next_state when 'stopped' then clock_timestamp() end,
        lease_expires_at = case c.next_state when 'stopping' then w.lease_expires_at end
      from current c where w.seq = c.seq and c.next_state is not null
      returning w.seq, c.state, c.environment_id, c.session_id, c.kind, c.lane, c.follow_up
    ), freed as (
      select d.seq, d.environment_id, d.session_id, d.kind, d.lane, d.follow_up from changed d where d.state <> 'stopping'
    ), ${successors(names, 'freed')}
    select c.state, c.next_state as "nextState",
      (c.follow_up is not null and exists (select from successor s where s.id = c.follow_up ->> 'id'))::text as "isFollowed",
      ${missingColumns(names, locking, sql`c.seq`)}
    from wanted full join current c on c.slot = wanted.slot
    order by wanted.slot`;
});

/**
 * Stops a set of items (distinct ids), answers in the order asked (contract §4). A stopped item never changes again. What
 * asked first stays the reason, unless the item is never wound down: then it ends as `abandoned`. What frees its slot, be it to wind down, is followed by the item's follow-up.
 * Refuses, each for itself: not_found; conflict when it is stopped, or stopping and not forced.
 */
export async function stop(
  database: Database,
  requests: readonly StopRequest[],
  locking: Locking = 'wait',
): Promise<(Stopped | QueueError | typeof HELD)[]> {
  const rows = await database.rows(statement(database.names, requests, setShape(locking, requests)));
  return rows.map((row) => {
    if (row.state === null) return missing(row);
    if (row.nextState === null) return new QueueError('conflict', `work item ${row.asked} is already ${row.state}`);
    return { state: row.nextState, isFollowed: row.isFollowed === 'true' };
  });
}

type Row = Missing & { state: WorkState | null; nextState: Stopped['state'] | null; isFollowed: 'true' | 'false' };
