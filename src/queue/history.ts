import { sql } from 'kysely';
import type { Database } from '../db/connect.ts';
import { rfc3339 } from '../db/sql.ts';
import {
  type DetailsRow,
  detailsAnswer,
  detailsSource,
  type Outcome,
  type StopReason,
  toWorkDetails,
  type WorkDetails,
} from './details.ts';
import { checkRef, handOutLapsed, handOutReached, notFound, type WorkRef } from './items.ts';

/** How a hand-out ends that is not the item's last. `failed`: an attempt that is tried again. */
export const HAND_OUT_ENDS = [
  'reservation_lapsed',
  'startup_lease_lapsed',
  'lease_lapsed',
  'released',
  'failed',
] as const;
export type HandOutEnd = (typeof HAND_OUT_ENDS)[number];

/** One time that the item was given to a worker. Instants are null until, or unless, reached. */
export type HandOutRecord = {
  readonly workId: string;
  readonly workerId: string | null;
  readonly handedOutAt: string;
  readonly acknowledgedAt: string | null;
  /** The first heartbeat. */
  readonly startedAt: string | null;
  readonly lastHeartbeatAt: string | null;
  /** When its lease ran out; null while that is live, and when the hand-out was given back or ended before. */
  readonly lapsedAt: string | null;
  /** When the next one took its place, or the item stopped. */
  readonly endedAt: string | null;
  /** Null while it goes on; how it ended before the item did; what the holder said of the item, else why that stopped. */
  readonly outcome: HandOutEnd | Outcome | StopReason | null;
};

export type History = {
  /** The item as it is now, under its present id. */
  readonly work: WorkDetails;
  /** Oldest first; of more than 1,000 the latest. */
  readonly handOuts: readonly HandOutRecord[];
};

export const HAND_OUTS_PER_HISTORY_MAX = 1_000;

/** What became of an item, asked by any id that it ever had, in either lane. Refuses: not_found. */
export async function history(database: Database, { environmentId, id }: WorkRef): Promise<History> {
  checkRef({ environmentId, id });
  const { workItems, handOuts } = database.names;
  const [row] = await database.rows(sql<DetailsRow & { handOuts: string }>`
    with item as materialized (
      select ${detailsSource('w')}, w.lapsed_at, w.lapsed_acknowledged_at, w.lapsed_started_at, w.lapsed_heartbeat
      from ${workItems} w
      where w.environment_id = ${environmentId} and w.seq = (
        select n.seq from ${workItems} n where n.id = ${id}
        union all select h.item_seq from ${handOuts} h where h.work_id = ${id}
      )
    ), given as materialized (
      (
        select h.work_id, h.worker_id, h.handed_out_at, h.acknowledged_at, h.started_at, h.last_heartbeat, h.lapsed_at,
          h.superseded_at as ended_at, h.reason as outcome
        from item i join ${handOuts} h on h.item_seq = i.seq
        order by h.superseded_at desc limit ${sql.lit(HAND_OUTS_PER_HISTORY_MAX - 1)}
      )
      union all
      select i.id, i.worker_id, i.handed_out_at, ${handOutReached('i')}, ${handOutLapsed('i')},
        i.stopped_at, case i.state when 'stopped' then coalesce(i.outcome, i.stop_reason) end
      from item i where i.handed_out_at is not null
    )
    select ${detailsAnswer(database.names, 'i')}, (
      select coalesce(json_agg(json_build_object('workId', g.work_id, 'workerId', g.worker_id,
        'handedOutAt', ${rfc3339(sql`g.handed_out_at`)}, 'acknowledgedAt', ${rfc3339(sql`g.acknowledged_at`)},
        'startedAt', ${rfc3339(sql`g.started_at`)}, 'lastHeartbeatAt', ${rfc3339(sql`g.last_heartbeat`)},
        'lapsedAt', ${rfc3339(sql`g.lapsed_at`)}, 'endedAt', ${rfc3339(sql`g.ended_at`)}, 'outcome', g.outcome
      ) order by g.handed_out_at, g.ended_at), '[]')::text from given g
    ) as "handOuts"
    from item i`);
  if (row === undefined) throw notFound(id);
  return { work: toWorkDetails(row), handOuts: JSON.parse(row.handOuts) };
}
