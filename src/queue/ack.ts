import { sql } from 'kysely';
import type { Database } from '../db/connect.ts';
import { fixed, givenLater } from '../db/sql.ts';
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
  readShape,
  type SetShape,
  setShape,
} from './sets.ts';
import type { QueueSettings } from './settings.ts';

type Args = Pick<QueueSettings, 'startupLeaseSeconds'> & { readonly requests: readonly WorkRef[] };

const statement = fixed<Args, Missing & { id: string | null } & Omit<ItemRow, 'id'>, SetShape>(
  (value, names, shape) => {
    const [locking, extent] = readShape(shape);
    const { workItems, environments } = names;
    return sql`
    with wanted as materialized (
      select t.environment_id, t.id, t.slot
      from ${givenLater(
        value,
        ({ requests }) => requests,
        {
          environment_id: ['text', (r) => r.environmentId],
          id: ['text', (r) => r.id],
        },
        extent,
      )}
    ), current as materialized (
      select wanted.slot, ${itemSource('w')}, coalesce(e.startup_lease_seconds, ${value((of) => of.startupLeaseSeconds)}::integer) as lease_seconds
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
      returning c.slot, ${itemSource('w')}
    ), answer as (
      select n.slot, ${itemSource('n')} from changed n
      union all select c.slot, ${itemSource('c')} from current c where c.state <> 'queued'
    )
    select ${itemAnswer('a')}, ${missingColumns(names, locking, sql`a.seq`)}
    from wanted full join answer a on a.slot = wanted.slot
    order by wanted.slot`;
  },
);

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
  const rows = await database.rows(
    statement(database.names, { requests, startupLeaseSeconds }, setShape(locking, requests)),
  );
  return rows.map((row) => (row.id === null ? missing(row) : toWorkItem({ ...row, id: row.id })));
}
