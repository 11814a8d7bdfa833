import { type RawBuilder, sql } from 'kysely';
import type { Database } from '../db/connect.ts';
import type { TableNames } from '../db/sql.ts';
import { successors } from '../queue/follow-up.ts';
import { topicsOf } from '../queue/topics.ts';
import { type CapSettings, doom, isLapsed } from './free-items.ts';

/** Lapsed items that are not to be run again are ended by whoever comes across them, so many at once. */
const ENDED_MAX = 50;

/** Parts of a statement's `with`: ends what has lapsed and is not to be run again. `only` narrows it; see `successors`. */
export const endDoomed = (names: TableNames, caps: CapSettings, only: RawBuilder<unknown>): RawBuilder<unknown> => sql`
    doomed as materialized (
      select w.seq, ${doom(names, caps)} as doom from ${names.workItems} w
      where ${isLapsed} and ${doom(names, caps)} is not null and ${only}
      order by w.seq limit ${sql.lit(ENDED_MAX)} for update of w skip locked
    ), ended as (
      update ${names.workItems} w
      set state = 'stopped', stop_requested_at = coalesce(w.stop_requested_at, w.cancel_requested_at),
        stopped_at = clock_timestamp(), stop_reason = d.doom, lapsed_at = w.lease_expires_at, lease_expires_at = null
      from doomed d where w.seq = d.seq
      returning w.seq, w.environment_id, w.session_id, w.kind, w.follow_up
    ), ${successors(names, 'ended')}`;

/**
 * The background's part in this lane: ends what has lapsed and is not to be run again, also where nobody claims; the rest stays
 * claimable as it is. Bounded, and skips what others hold. `topics`: whom the successors wake. `more`: reap again.
 */
export async function reap(database: Database, caps: CapSettings): Promise<{ topics: string[]; more: boolean }> {
  const [row] = await database.rows(sql<{ count: number; successors: string | null }>`
    with ${endDoomed(database.names, caps, sql`true`)}
    select (select count(*) from doomed)::integer as count, (select json_agg(s)::text from successor s) as successors`);
  return { topics: topicsOf(row?.successors ?? null), more: (row?.count ?? 0) >= ENDED_MAX };
}
