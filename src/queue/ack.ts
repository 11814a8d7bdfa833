import { sql } from 'kysely';
import type { Database } from '../db/connect.ts';
import { given } from '../db/sql.ts';
import type { QueueError } from './errors.ts';
import { type ItemRow, itemAnswer, itemSource, toWorkItem, type WorkItem, type WorkRef } from './items.ts';
import {
  type HELD,
  type Locking,
  isPolled,
  isThere,
  lockClause,
  type Missing,
  missing,
  missingColumns,
} from './sets.ts';
import type { QueueSettings } from './settings.ts';

/**
 * Acknowledges a set of items (distinct ids), answers in the order asked. Only the queued → starting edge writes: it stamps
 * `acknowledgedAt` and installs the environment's startup lease; an item past it is answered as it is, never with a conflict (contract §4).
 * Refuses, each for itself: not_found.
 */
export async function ack(
  database: Database,
  requests: readonly WorkRef[],
  { startupLeaseSeconds }: Pick<QueueSettings, 'startupLeaseSeconds'>,
  locking: Locking = 'wait',
): Promise<(WorkItem | QueueError | typeof HELD)[]> {
  const { workItems, environments } = database.names;
  const rows = await database.rows(sql<Missing & { id: string | null } & Omit<ItemRow, 'id'>>`
    with wanted as materialized (
      select t.environment_id, t.id, t.slot
      from ${given(requests, {
        environment_id: ['text', (r) => r.environmentId],
        id: ['text', (r) => r.id],
      })}
    ), current as materialized (
      select ${itemSource('w')}, coalesce(e.startup_lease_seconds, ${startupLeaseSeconds}::integer) as lease_seconds
      from ${workItems} w join wanted on wanted.id = w.id
        join ${environments} e on e.id = w.environment_id
      where ${isThere} and ${isPolled}
      order by w.seq ${lockClause(locking)}
    ), changed as (
      update ${workItems} w
      set state = 'starting', acknowledged_at = clock_timestamp(),
        lease_expires_at = clock_timestamp() + c.lease_seconds * interval '1 second',
        handed_out_at = coalesce(w.handed_out_at, clock_timestamp()), hand_out_count = w.hand_out_count + case when w.handed_out_at is null then 1 else 0 end
      from current c where w.seq = c.seq and c.state = 'queued'
      returning ${itemSource('w')}
    ), answer as (
      select ${itemSource('n')} from changed n
      union all select ${itemSource('c')} from current c where c.state <> 'queued'
    )
    select ${itemAnswer('a')}, ${missingColumns(database.names, locking)}
    from wanted left join answer a on a.id = wanted.id and a.environment_id = wanted.environment_id
    order by wanted.slot`);
  return rows.map((row) => (row.id === null ? missing(row) : toWorkItem({ ...row, id: row.id })));
}
