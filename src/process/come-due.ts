import { sql } from 'kysely';
import type { Database } from '../db/connect.ts';
import { WORK_KINDS } from '../queue/items.ts';
import { topicsOf } from '../queue/topics.ts';

/** Of one kind, in one statement. */
const ROWS_MAX = 500;

/**
 * The background's other part in this lane: queued items that have come due take their place in line. Until then a claim sees only
 * the few of them that have been due for longest, whatever their priority: behind those that it never prefers, others would wait for
 * ever. Bounded, and skips what others hold. `topics`: whom they wake. `more`: again.
 */
export async function comeDue({ names, rows }: Database): Promise<{ topics: string[]; more: boolean }> {
  const { workItems } = names;
  const [row] = await rows(sql<{ count: number; placed: string | null }>`
    with due as materialized (
      select d.seq from unnest(${[...WORK_KINDS]}::text[]) k (kind) cross join lateral (
        select w.seq from ${workItems} w
        where w.kind = k.kind and w.lane = 'process' and w.state = 'queued' and w.next_attempt_at <= statement_timestamp()
        order by w.next_attempt_at limit ${sql.lit(ROWS_MAX)} for update of w skip locked
      ) d
    ), placed as (
      update ${workItems} w set next_attempt_at = null from due d where w.seq = d.seq
      returning w.environment_id, w.kind, w.lane
    )
    select count(*)::integer as count, json_agg(p)::text as placed from placed p`);
  return { topics: topicsOf(row?.placed ?? null), more: (row?.count ?? 0) >= ROWS_MAX };
}
