import { type RawBuilder, sql } from 'kysely';
import type { TableNames } from '../db/sql.ts';
import { laneOf } from './items.ts';

/**
 * Two more parts of a statement's `with`: the successors of the items that it ends. `ended` names a part of it: rows that have just
 * left their slot, with seq, environment_id, session_id, kind and follow_up. It must be one that the update feeds, so
 * that the slot is free by then. Answers in `successor`: seq, id, environment_id, kind, lane.
 */
export const successors = (
  { workItems, workInputs, environments }: TableNames,
  ended: string,
): RawBuilder<unknown> => sql`
  successor as (
    insert into ${workItems} (id, environment_id, session_id, kind, lane, state, priority, not_before, metadata, max_hand_outs, max_attempts,
      next_attempt_at, traceparent, tracestate, created_at)
    select f.id, e.environment_id, e.session_id, e.kind, l.lane, 'queued', f.priority, f.not_before, f.metadata, f.max_hand_outs,
      f.max_attempts, case l.lane when 'process' then f.not_before end, f.traceparent, f.tracestate, clock_timestamp()
    from ${sql.ref(ended)} e join ${environments} p on p.id = e.environment_id
      cross join lateral jsonb_to_record(e.follow_up) as f(id text, priority smallint, not_before timestamptz,
        metadata jsonb, max_hand_outs integer, max_attempts integer, traceparent text, tracestate text)
      cross join lateral (select ${laneOf(sql`e.kind`, sql`p.type`)} as lane) l
    where e.follow_up is not null
    returning seq, id, environment_id, kind, lane
  ), successor_input as (
    insert into ${workInputs} (item_seq, input)
    select s.seq, e.follow_up ->> 'input' from successor s join ${sql.ref(ended)} e on e.follow_up ->> 'id' = s.id
    where e.follow_up ->> 'input' is not null
  )`;
