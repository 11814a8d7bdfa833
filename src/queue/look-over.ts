import { type RawBuilder, sql } from 'kysely';
import type { Database } from '../db/connect.ts';
import { given } from '../db/sql.ts';

/** Who waits in an environment for what has been enqueued that long ago. */
export type WaitingLine = { readonly environmentId: string; readonly minQueuedAgeMs: number };

/**
 * Which of the lines a look would find something for now, by their place: one statement for all of them (design §5). It takes nothing, and
 * a line that it does not name is empty.
 */
export async function lookOver(database: Database, lines: readonly WaitingLine[]): Promise<number[]> {
  const { environments, workItems } = database.names;
  const isOldEnough = sql`(t.age_ms = 0 or w.created_at <= statement_timestamp() - t.age_ms * interval '1 millisecond')`;
  const item = (where: RawBuilder<unknown>) => sql`exists (
    select from ${workItems} w where w.environment_id = t.environment_id and w.lane = 'wire' and ${where} and ${isOldEnough})`;
  const rows = await database.rows(sql<{ slot: number }>`
    select t.slot::integer as slot
    from ${given(lines, {
      environment_id: ['text', (line) => line.environmentId],
      age_ms: ['integer', (line) => line.minQueuedAgeMs],
    })} join ${environments} e on e.id = t.environment_id
    where e.paused_at is null and (
      ${item(sql`w.state = 'queued' and w.not_before is null and (w.lease_expires_at is null or w.lease_expires_at <= clock_timestamp())`)}
      or ${item(sql`w.state = 'queued' and w.not_before <= statement_timestamp() and (w.lease_expires_at is null or w.lease_expires_at <= clock_timestamp())`)}
      or ${item(sql`w.state in ('starting', 'active') and w.lease_expires_at <= clock_timestamp()`)})`);
  return rows.map(({ slot }) => slot - 1);
}
