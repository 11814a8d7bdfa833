import { sql } from 'kysely';
import type { Database } from '../db/connect.ts';
import type { QueueSettings } from '../queue/settings.ts';

const SESSIONS_PER_STATEMENT_MAX = 50;
const EVENTS_PER_STATEMENT_MAX = 2_000;

export type SessionsPruned = { readonly pruned: number; readonly more: boolean };

/**
 * Removes sessions that were archived for their environment's retention time: their events in steps, then themselves. Replicas take turns by
 * an advisory lock; bounded, and skips what others hold. statement_timestamp: what is volatile would keep the index out.
 */
export async function pruneSessions(
  database: Database,
  { retentionDays }: Pick<QueueSettings, 'retentionDays'>,
): Promise<SessionsPruned> {
  const { environments, sessions, sessionEvents } = database.names;
  const [row] = await database.rows(sql<{ pruned: number; removed: number }>`
    with turn as materialized (
      select pg_try_advisory_xact_lock(hashtextextended(${`${database.schema} prune sessions`}, 0)) as mine
    ), old as materialized (
      select s.id from turn, ${sessions} s join ${environments} e on e.id = s.environment_id
      where turn.mine and s.archived_at < statement_timestamp() - interval '1 day'
        and s.archived_at < statement_timestamp() - coalesce(e.retention_days, ${retentionDays}::integer) * interval '1 day'
      order by s.archived_at limit ${sql.lit(SESSIONS_PER_STATEMENT_MAX)} for update of s skip locked
    ), events as materialized (
      select e.session_id, e.seq from ${sessionEvents} e where e.session_id in (select o.id from old o)
      limit ${sql.lit(EVENTS_PER_STATEMENT_MAX)}
    ), removed as (
      delete from ${sessionEvents} e using events v where e.session_id = v.session_id and e.seq = v.seq returning e.seq
    ), pruned as (
      delete from ${sessions} s using old o
      where s.id = o.id and not exists (select from ${sessionEvents} e where e.session_id = o.id)
      returning s.id
    )
    select (select count(*) from pruned)::integer as pruned, (select count(*) from removed)::integer as removed from turn`);
  const { pruned = 0, removed = 0 } = row ?? {};
  return { pruned, more: pruned + removed > 0 };
}
