import { sql } from 'kysely';
import type { Database } from '../db/connect.ts';
import { rfc3339 } from '../db/sql.ts';
import { environmentNotFound } from './errors.ts';
import { isQueuedIn, standsIn, type WorkState } from './items.ts';

export type Worker = {
  readonly workerId: string;
  /** When its last poll was open or answered; null when that is too long ago to be remembered. */
  readonly lastPollAt: string | null;
  /** The first 100 of the items that it has under a live lease. */
  readonly holds: readonly {
    readonly workId: string;
    readonly sessionId: string;
    readonly state: Exclude<WorkState, 'stopped'>;
    readonly leaseExpiresAt: string;
  }[];
};

const SEEN_SECONDS = 3_600;
export const WORKERS_MAX = 1_000;
export const HOLDS_PER_WORKER_MAX = 100;

/**
 * Who has polled within the hour or holds an item now, the last seen first, at most 1,000. Workers that name themselves in no
 * poll are not among them. Refuses: environment_not_found.
 */
export async function workers(database: Database, environmentId: string): Promise<Worker[]> {
  const { workItems, workerSightings, environments } = database.names;
  const isHeld = sql`w.worker_id is not null
        and w.lease_expires_at > clock_timestamp()`;
  const columns = sql`w.worker_id, w.seq, w.id, w.session_id, w.state, w.lease_expires_at`;
  const rows = await database.rows(sql<{ workerId: string | null; lastPollAt: string | null; holds: string }>`
    with held as materialized (
      select ${columns} from ${workItems} w where ${isQueuedIn(environmentId)} and ${isHeld}
      union all
      select ${columns} from ${workItems} w where ${standsIn(environmentId)} and ${isHeld} and w.state in ('starting', 'active', 'stopping')
    ), placed as materialized (
      select h.worker_id, h.id, h.session_id, h.state, h.lease_expires_at,
        row_number() over (partition by h.worker_id order by h.seq) as place
      from held h
    ), holding as materialized (
      select p.worker_id, json_agg(json_build_object('workId', p.id, 'sessionId', p.session_id, 'state', p.state,
        'leaseExpiresAt', ${rfc3339(sql`p.lease_expires_at`)}) order by p.place) as holds
      from placed p where p.place <= ${sql.lit(HOLDS_PER_WORKER_MAX)} group by p.worker_id
    ), seen as materialized (
      select s.worker_id, s.seen_at from ${workerSightings} s where s.environment_id = ${environmentId}
    ), worker as materialized (
      select coalesce(s.worker_id, h.worker_id) as id, s.seen_at, h.holds
      from seen s full join holding h on h.worker_id = s.worker_id
      where h.worker_id is not null or s.seen_at > clock_timestamp() - ${sql.lit(SEEN_SECONDS)} * interval '1 second'
      order by s.seen_at desc nulls last, 1 limit ${sql.lit(WORKERS_MAX)}
    )
    select w.id as "workerId", ${rfc3339(sql`w.seen_at`)} as "lastPollAt", coalesce(w.holds, '[]')::text as holds
    from ${environments} e left join worker w on true
    where e.id = ${environmentId}
    order by w.seen_at desc nulls last, w.id`);
  if (rows.length === 0) throw environmentNotFound(environmentId);
  return rows.flatMap(({ workerId, lastPollAt, holds }) =>
    workerId === null ? [] : [{ workerId, lastPollAt, holds: JSON.parse(holds) }],
  );
}
