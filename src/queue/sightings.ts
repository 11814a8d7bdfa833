import { sql } from 'kysely';
import type { Database } from '../db/connect.ts';

/** A worker's poll, seen `ageMs` ago by this process's monotonic clock. */
export type Sighting = { readonly environmentId: string; readonly workerId: string; readonly ageMs: number };

/** Records polls, at most one row a worker. Unknown environments are passed over. */
export async function recordSightings(database: Database, sightings: readonly Sighting[]): Promise<void> {
  const { workerSightings, environments } = database.names;
  await database.rows(sql`
    insert into ${workerSightings} as s (environment_id, worker_id, seen_at)
    select t.environment_id, t.worker_id, clock_timestamp() - t.age_ms * interval '1 millisecond'
    from unnest(${sightings.map((s) => s.environmentId)}::text[], ${sightings.map((s) => s.workerId)}::text[],
      ${sightings.map((s) => Math.round(s.ageMs))}::integer[]
    ) as t(environment_id, worker_id, age_ms)
    join ${environments} e on e.id = t.environment_id
    order by t.environment_id, t.worker_id
    on conflict (environment_id, worker_id) do update set seen_at = greatest(s.seen_at, excluded.seen_at)`);
}
