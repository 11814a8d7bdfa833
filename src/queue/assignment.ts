import { type RawBuilder, sql } from 'kysely';
import type { Database } from '../db/connect.ts';
import type { TableNames } from '../db/sql.ts';
import { checkRef, notFound, presentId, type TraceContext, type WorkKind, type WorkRef } from './items.ts';
import type { QueueSettings } from './settings.ts';

/** What whoever does the work needs to know beside the wire object. */
export type Assignment = {
  /** As it was enqueued; null without one. */
  readonly input: unknown;
  readonly kind: WorkKind;
  /** The same in every attempt. */
  readonly seq: string;
  /** From 1: one more than the failures so far. */
  readonly attempt: number;
  readonly maxAttempts: number;
  /** Somebody who had begun it let its lease lapse: part of the work may be done. */
  readonly isReclaimed: boolean;
  readonly traceContext: TraceContext | null;
};

/**
 * Whoever had begun `w` let its lease lapse, in either lane: a reservation that nobody acknowledged was not begun. Also whoever holds it still, or
 * gave it back: it was acknowledged once more after the sweep.
 */
export const wasBegun = ({ handOuts }: TableNames, w: RawBuilder<unknown>): RawBuilder<unknown> => sql`(
        ${w}.hand_over_count > 0 or ${w}.lapsed_state is not null or exists (
          select from ${handOuts} h where h.item_seq = ${w}.seq and (h.reason in ('startup_lease_lapsed', 'lease_lapsed')
            or (h.reason in ('released', 'failed') and h.lapsed_at is not null))
        )
      )`;

type Row = Omit<Assignment, 'input' | 'attempt' | 'maxAttempts' | 'traceContext'> & {
  readonly id: string | null;
  readonly input: string | null;
  readonly attempt: number;
  readonly maxAttempts: number;
  readonly traceparent: string | null;
  readonly tracestate: string | null;
  readonly presentId: string | null;
};

/** Of an item in either lane. Refuses: not_found. */
export async function readAssignment(
  database: Database,
  { environmentId, id }: WorkRef,
  { maxAttempts }: Pick<QueueSettings, 'maxAttempts'>,
): Promise<Assignment> {
  checkRef({ environmentId, id });
  const { workItems, workInputs, environments } = database.names;
  const [row] = await database.rows(sql<Row>`
    select w.id, w.seq::text as seq, i.input, w.kind, w.attempt, w.traceparent, w.tracestate,
      coalesce(w.max_attempts, e.max_attempts, ${maxAttempts}::integer) as "maxAttempts",
      ${wasBegun(database.names, sql`w`)} as "isReclaimed",
      ${presentId(database.names, sql`${environmentId}`, sql`${id}`)} as "presentId"
    from (select 1) one left join ${workItems} w on w.id = ${id} and w.environment_id = ${environmentId}
      left join ${environments} e on e.id = w.environment_id left join ${workInputs} i on i.item_seq = w.seq`);
  if (row === undefined || row.id === null) throw notFound(id, row?.presentId);
  const { input, traceparent, tracestate } = row;
  return {
    ...{
      kind: row.kind,
      seq: row.seq,
      attempt: row.attempt,
      maxAttempts: row.maxAttempts,
      isReclaimed: row.isReclaimed,
    },
    input: input === null ? null : JSON.parse(input),
    traceContext: traceparent === null ? null : { traceparent, ...(tracestate === null ? {} : { tracestate }) },
  };
}
