import { sql } from 'kysely';
import type { Database } from '../db/connect.ts';

/** `credential`: a poll's was refused (401). `heartbeat`: its token was not the current one (412). */
export type Refusal = 'credential' | 'heartbeat';

/** So many refusals, the last of them `ageMs` ago by this process's monotonic clock. */
export type Refused = {
  readonly environmentId: string;
  readonly refusal: Refusal;
  readonly count: number;
  readonly ageMs: number;
};

const KEPT_HOURS = 24;
const PRUNED_PER_WRITE_MAX = 500;

/**
 * Adds to the counts of each minute, of distinct (environment, refusal) pairs, and prunes what those environments have from
 * more than a day ago. Unknown environments are passed over.
 */
export async function recordRefusals(database: Database, refused: readonly Refused[]): Promise<void> {
  const { refusals, environments } = database.names;
  await database.rows(sql`
    with given as materialized (
      select t.environment_id, t.refusal, t.count, clock_timestamp() - t.age_ms * interval '1 millisecond' as last_at
      from unnest(${refused.map((r) => r.environmentId)}::text[], ${refused.map((r) => r.refusal)}::text[],
        ${refused.map((r) => r.count)}::integer[], ${refused.map((r) => Math.round(r.ageMs))}::integer[]
      ) as t(environment_id, refusal, count, age_ms)
      join ${environments} e on e.id = t.environment_id
    ), old as materialized (
      select r.environment_id, r.refusal, r.minute from ${refusals} r
      where r.environment_id in (select g.environment_id from given g)
        and r.minute < clock_timestamp() - ${sql.lit(KEPT_HOURS)} * interval '1 hour'
      limit ${sql.lit(PRUNED_PER_WRITE_MAX)} for update skip locked
    ), pruned as (
      delete from ${refusals} r using old o
      where r.environment_id = o.environment_id and r.refusal = o.refusal and r.minute = o.minute
    )
    insert into ${refusals} as r (environment_id, refusal, minute, count, last_at)
    select g.environment_id, g.refusal, date_trunc('minute', g.last_at), g.count, g.last_at from given g
    order by g.environment_id, g.refusal
    on conflict (environment_id, refusal, minute)
    do update set count = r.count + excluded.count, last_at = greatest(r.last_at, excluded.last_at)`);
}
