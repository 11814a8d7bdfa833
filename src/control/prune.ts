import { sql } from 'kysely';
import type { Database } from '../db/connect.ts';
import { ANSWERS_KEPT_DAYS } from './retried-writes.ts';

const ROWS_PER_STATEMENT_MAX = 500;

export type ControlPruned = {
  readonly answers: number;
  readonly auditEntries: number;
  readonly keys: number;
  readonly tickets: number;
  /** True when a bound was reached: there is more, prune again. */
  readonly more: boolean;
};

/**
 * Removes answers to retried writes that are not given again, tickets that have expired, and what is past the retention time, in days:
 * audit entries, and keys since they were revoked or expired. Replicas take turns by an advisory lock; bounded, and skips what others hold.
 * statement_timestamp: what is volatile would keep the index out, and all that is kept would be read each time.
 */
export async function pruneControl(
  database: Database,
  { retentionDays }: { retentionDays: number },
): Promise<ControlPruned> {
  const { idempotencyKeys, auditLog, credentials, streamTickets } = database.names;
  const [row] = await database.rows(sql<Omit<ControlPruned, 'more'>>`
    with turn as materialized (
      select pg_try_advisory_xact_lock(hashtextextended(${`${database.schema} prune control`}, 0)) as mine
    ), outdated as materialized (
      select k.caller, k.key from ${idempotencyKeys} k, turn
      where turn.mine and k.created_at <= statement_timestamp() - ${sql.lit(ANSWERS_KEPT_DAYS)} * interval '1 day'
      order by k.created_at limit ${sql.lit(ROWS_PER_STATEMENT_MAX)} for update of k skip locked
    ), forgotten as (
      delete from ${idempotencyKeys} k using outdated o where k.caller = o.caller and k.key = o.key returning k.key
    ), old as materialized (
      select a.seq from ${auditLog} a, turn
      where turn.mine and a.at < statement_timestamp() - ${retentionDays} * interval '1 day'
      order by a.at limit ${sql.lit(ROWS_PER_STATEMENT_MAX)} for update of a skip locked
    ), removed as (
      delete from ${auditLog} a using old o where a.seq = o.seq returning a.seq
    ), over as materialized (
      select c.id from ${credentials} c, turn
      where turn.mine and least(c.revoked_at, c.expires_at) < clock_timestamp() - ${retentionDays} * interval '1 day'
      limit ${sql.lit(ROWS_PER_STATEMENT_MAX)} for update of c skip locked
    ), ended as (
      delete from ${credentials} c using over o where c.id = o.id returning c.id
    ), spent as materialized (
      select s.ticket_hash from ${streamTickets} s, turn
      where turn.mine and s.expires_at < statement_timestamp()
      order by s.expires_at limit ${sql.lit(ROWS_PER_STATEMENT_MAX)} for update of s skip locked
    ), dropped as (
      delete from ${streamTickets} s using spent x where s.ticket_hash = x.ticket_hash returning s.ticket_hash
    )
    select (select count(*) from forgotten)::integer as answers, (select count(*) from removed)::integer as "auditEntries",
      (select count(*) from ended)::integer as keys, (select count(*) from dropped)::integer as tickets
    from turn`);
  const { answers = 0, auditEntries = 0, keys = 0, tickets = 0 } = row ?? {};
  const more = Math.max(answers, auditEntries, keys, tickets) >= ROWS_PER_STATEMENT_MAX;
  return { answers, auditEntries, keys, tickets, more };
}
