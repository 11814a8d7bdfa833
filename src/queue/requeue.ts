import { sql } from 'kysely';
import type { Database } from '../db/connect.ts';
import { isForeignKeyViolation } from '../db/failures.ts';
import { type DetailsRow, detailsAnswer, detailsSource, toWorkDetails, type WorkDetails } from './details.ts';
import { QueueError } from './errors.ts';
import { mintId } from './ids.ts';
import { checkRef, laneOf, notFound, presentId, type WorkRef } from './items.ts';

/**
 * Puts an item that was set aside back to work, as a new item that names the old one: its session, kind, priority, metadata, input,
 * cap and trace context, with nothing handed out yet (design §6). The old one stays as it is.
 * Refuses: not_found; conflict when it was not set aside, was put back already, or a live item has the slot;
 * environment_archived.
 */
export async function requeueSetAside(database: Database, { environmentId, id }: WorkRef): Promise<WorkDetails> {
  checkRef({ environmentId, id });
  const { workItems, workInputs, environments } = database.names;
  const [row] = await database
    .rows(sql<Row>`
    with old as materialized (
      select w.seq, w.id, w.environment_id, w.session_id, w.kind, ${laneOf(sql`w.kind`, sql`e.type`)} as lane, w.priority, w.metadata,
        w.max_hand_outs, w.max_attempts, w.traceparent, w.tracestate,
        case
          when w.stop_reason in ('exhausted', 'failed') then
            case when e.archived_at is not null then 'environment_archived' else 'set_aside' end
          else 'not_set_aside'
        end as verdict
      from ${workItems} w join ${environments} e on e.id = w.environment_id
      where w.id = ${id} and w.environment_id = ${environmentId}
    ), created as (
      insert into ${workItems} (id, environment_id, session_id, kind, lane, state, priority, metadata, max_hand_outs,
        max_attempts, traceparent, tracestate, requeued_from, created_at)
      select ${mintId('work')}, o.environment_id, o.session_id, o.kind, o.lane, 'queued', o.priority, o.metadata, o.max_hand_outs,
        o.max_attempts, o.traceparent, o.tracestate, o.id, clock_timestamp()
      from old o where o.verdict = 'set_aside'
      on conflict do nothing
      returning ${detailsSource('work_items')}
    ), inputs as (
      insert into ${workInputs} (item_seq, input)
      select c.seq, i.input from created c, old o join ${workInputs} i on i.item_seq = o.seq
    )
    select o.verdict, exists (select from ${workItems} w where w.requeued_from = ${id}) as "wasRequeued",
      ${presentId(database.names, sql`${environmentId}`, sql`${id}`)} as "presentId", ${detailsAnswer(database.names, 'c')}
    from (select 1) one left join old o on true left join created c on true`)
    .catch((error: unknown) => {
      // The environment was deleted while this waited for its row, and the item with it.
      throw isForeignKeyViolation(error) ? notFound(id) : error;
    });
  if (row === undefined || row.verdict === null) throw notFound(id, row?.presentId);
  if (row.id !== null) return toWorkDetails({ ...row, id: row.id });
  switch (row.verdict) {
    case 'environment_archived':
      throw new QueueError(row.verdict, `environment ${environmentId} is archived: it takes no new work`);
    case 'not_set_aside':
      throw new QueueError(
        'conflict',
        `work item ${id} was not set aside: only what is exhausted or failed is put back`,
      );
    default:
      throw new QueueError(
        'conflict',
        row.wasRequeued
          ? `work item ${id} was put back already`
          : `the session of work item ${id} has a live item: try again when that has ended`,
      );
  }
}

type Row = {
  verdict: 'set_aside' | 'not_set_aside' | 'environment_archived' | null;
  wasRequeued: boolean;
  presentId: string | null;
  id: string | null;
} & Omit<DetailsRow, 'id'>;
