import { type RawBuilder, sql } from 'kysely';
import type { Database } from '../db/connect.ts';
import { rfc3339 } from '../db/sql.ts';
import { handOutLapsed, handOutReached, isQueuedIn, standsIn } from './items.ts';
import { figures, WORKER_POLLING_SECONDS } from './stats.ts';

/** When a finding is made. Durations in seconds, shares of 1. */
export const THRESHOLDS = {
  /** Nobody has polled for so long. */
  noPollSeconds: WORKER_POLLING_SECONDS,
  /** Refusals count for so long. */
  refusalsSeconds: 600,
  /** Heartbeats refused a minute, averaged over that time. */
  heartbeatsRefusedPerMinute: 5,
  /** Lapses count for so long. */
  lapsesSeconds: 3_600,
  /** Lapsed reservations. */
  reservationsLapsed: 3,
  /** Few: of the hand-outs that lapsed so or got past it, at most this share got past it. */
  fewShare: 0.2,
  /** Acked hand-outs that never beat: at least this share of those that beat or should have. */
  neverBeatShare: 0.2,
  /** Runs whose lease lapsed count for so long. */
  runsSeconds: 86_400,
  /** Runs that ended at the same age. */
  sameAgeRuns: 3,
  /** The same age: none further from the median than this, or than this share of it. */
  sameAgeSeconds: 5,
  sameAgeShare: 0.1,
} as const;

/** Hand-outs of the last day, items finished in the last hour, set-aside items: no more than this of each is looked at. */
const ROWS_READ_MAX = 10_000;

const ago = (seconds: number) => sql`(statement_timestamp() - ${sql.lit(seconds)} * interval '1 second')`;

/** What is known of an environment's work on the wire lane: common table expressions, each of one row but for `given`. */
export function facts(database: Database, environmentId: string): RawBuilder<unknown> {
  const { environments, workItems, handOuts, workerSightings, credentials, refusals } = database.names;
  const ours = sql`w.environment_id = ${environmentId} and w.lane = 'wire'`;
  const present = sql`w.handed_out_at, ${handOutReached('w')}, ${handOutLapsed('w')} as lapsed_at`;
  const refused = (refusal: 'credential' | 'heartbeat') => sql`filter (where r.refusal = ${sql.lit(refusal)})`;
  return sql`
    figures as materialized (${figures(database, sql`where e.id = ${environmentId}`)}),
    place as materialized (
      select e.paused_at, e.archived_at from ${environments} e where e.id = ${environmentId}
    ), waiting as materialized (
      select count(*) as queued, count(*) filter (where q.due and not q.reserved) as free,
        count(*) filter (where not q.due) as not_due, min(q.not_before) as earliest_due_at,
        min(q.created_at) filter (where q.due and not q.reserved) as oldest_free_at
      from (
        select w.created_at, w.not_before, coalesce(w.not_before <= clock_timestamp(), true) as due,
          coalesce(w.lease_expires_at > clock_timestamp(), false) as reserved
        from ${workItems} w where ${isQueuedIn(environmentId)}
      ) q
    ), held as materialized (
      select count(*) as items from ${workItems} w where ${standsIn(environmentId)} and w.state in ('starting', 'active', 'stopping')
    ), aside as materialized (
      select count(*) as items from (
        select from ${workItems} w where ${ours} and w.state = 'stopped' and w.stop_reason in ('exhausted', 'failed')
          and not exists (select from ${workItems} n where n.requeued_from = w.id)
        limit ${sql.lit(ROWS_READ_MAX)}
      ) w
    ), given as materialized (
      (
        select h.handed_out_at, h.acknowledged_at, h.started_at, h.last_heartbeat, h.lapsed_at
        from ${handOuts} h where h.environment_id = ${environmentId} and h.superseded_at > ${ago(THRESHOLDS.runsSeconds)}
        order by h.superseded_at desc limit ${sql.lit(ROWS_READ_MAX)}
      )
      union all
      select ${present} from ${workItems} w where ${isQueuedIn(environmentId)} and w.handed_out_at is not null
      union all
      select ${present} from ${workItems} w where ${standsIn(environmentId)} and w.state in ('starting', 'active', 'stopping')
      union all
      (
        select ${present} from ${workItems} w
        where ${ours} and w.state = 'stopped' and w.stopped_at > ${ago(THRESHOLDS.lapsesSeconds)}
        order by w.stopped_at desc limit ${sql.lit(ROWS_READ_MAX)}
      )
    ), polled as materialized (
      select greatest(
        (select max(s.seen_at) from ${workerSightings} s where s.environment_id = ${environmentId}),
        (select max(g.handed_out_at) from given g) -- also to workers without a name
      ) as last_at
    ), lapses as materialized (
      select count(*) filter (where g.acknowledged_at is null and g.lapsed_at > ${ago(THRESHOLDS.lapsesSeconds)}) as unacked,
        count(*) filter (where g.acknowledged_at > ${ago(THRESHOLDS.lapsesSeconds)}) as acked,
        count(*) filter (where g.acknowledged_at is not null and g.started_at is null
          and g.lapsed_at > ${ago(THRESHOLDS.lapsesSeconds)}) as never_beat,
        count(*) filter (where g.started_at > ${ago(THRESHOLDS.lapsesSeconds)}) as beat
      from given g
    ), ages as materialized (
      select count(*) as runs, percentile_cont(0.5) within group (order by r.seconds) as median,
        min(r.seconds) as least, max(r.seconds) as most
      from (
        select extract(epoch from g.last_heartbeat - g.started_at)::float8 as seconds
        from given g where g.started_at is not null and g.lapsed_at > ${ago(THRESHOLDS.runsSeconds)}
      ) r
    ), refused as materialized (
      select coalesce(sum(r.count) ${refused('credential')}, 0) as credentials,
        max(r.last_at) ${refused('credential')} as credential_at,
        coalesce(sum(r.count) ${refused('heartbeat')}, 0) as heartbeats, max(r.last_at) ${refused('heartbeat')} as heartbeat_at
      from ${refusals} r where r.environment_id = ${environmentId} and r.last_at > ${ago(THRESHOLDS.refusalsSeconds)}
    ), keys as materialized (
      select count(*) as live, min(coalesce(c.min_queued_age_ms, 0)) as floor_ms from ${credentials} c
      where c.environment_id = ${environmentId} and c.revoked_at is null and c.expires_at > clock_timestamp()
    )`;
}

export type FindingCode =
  | 'archived'
  | 'paused'
  | 'no_worker_polls'
  | 'credentials_refused'
  | 'age_floor'
  | 'not_yet_due'
  | 'all_set_aside'
  | 'reservations_lapse'
  | 'acked_never_beat'
  | 'runs_end_at_same_age'
  | 'heartbeats_refused';

type Rule = { readonly from: string; readonly when: RawBuilder<unknown>; readonly evidence: Record<string, unknown> };

const T = THRESHOLDS;
const ms = (interval: RawBuilder<unknown>) => sql`floor(extract(epoch from ${interval}) * 1000)`;
const seconds = (column: RawBuilder<unknown>) => sql`round(${column}::numeric, 3)`;
const age = sql`(clock_timestamp() - w.oldest_free_at)`;

/** What is found, from which facts, and what shows it: in the order in which findings are told. */
export const RULES: Readonly<Record<FindingCode, Rule>> = {
  archived: {
    from: 'place p, waiting w',
    when: sql`p.archived_at is not null`,
    evidence: { archived_at: rfc3339(sql`p.archived_at`), queued: sql`w.queued` },
  },
  paused: {
    from: 'place p, waiting w',
    when: sql`p.paused_at is not null`,
    evidence: { paused_at: rfc3339(sql`p.paused_at`), queued: sql`w.queued` },
  },
  no_worker_polls: {
    from: 'waiting w, polled p',
    when: sql`w.free > 0 and coalesce(p.last_at <= ${ago(T.noPollSeconds)}, true)`,
    evidence: { free: sql`w.free`, last_poll_at: rfc3339(sql`p.last_at`) },
  },
  credentials_refused: {
    from: 'refused r',
    when: sql`r.credentials > 0`,
    evidence: { refused: sql`r.credentials`, last_refused_at: rfc3339(sql`r.credential_at`) },
  },
  age_floor: {
    from: 'waiting w, keys k',
    when: sql`w.free > 0 and k.live > 0 and ${ms(age)} < k.floor_ms`,
    evidence: { keys: sql`k.live`, min_queued_age_ms: sql`k.floor_ms`, oldest_queued_age_ms: ms(age) },
  },
  not_yet_due: {
    from: 'waiting w',
    when: sql`w.queued > 0 and w.not_due = w.queued`,
    evidence: { queued: sql`w.queued`, earliest_due_at: rfc3339(sql`w.earliest_due_at`) },
  },
  all_set_aside: {
    from: 'waiting w, held h, aside s',
    when: sql`w.queued = 0 and h.items = 0 and s.items > 0`,
    evidence: { set_aside: sql`s.items` },
  },
  reservations_lapse: {
    from: 'lapses l',
    when: sql`l.unacked >= ${sql.lit(T.reservationsLapsed)} and l.acked <= ${sql.lit(T.fewShare)} * (l.unacked + l.acked)`,
    evidence: {
      lapsed: sql`l.unacked`,
      acked: sql`l.acked`,
      acked_share: sql`round(l.acked::numeric / greatest(l.unacked + l.acked, 1), 3)`,
    },
  },
  acked_never_beat: {
    from: 'lapses l',
    when: sql`l.never_beat > 0 and l.never_beat >= ${sql.lit(T.neverBeatShare)} * (l.never_beat + l.beat)`,
    evidence: { lapsed: sql`l.never_beat`, beat: sql`l.beat` },
  },
  runs_end_at_same_age: {
    from: 'ages a',
    when: sql`a.runs >= ${sql.lit(T.sameAgeRuns)} and greatest(a.most - a.median, a.median - a.least)
      <= greatest(${sql.lit(T.sameAgeSeconds)}, ${sql.lit(T.sameAgeShare)} * a.median)`,
    evidence: {
      runs: sql`a.runs`,
      median_seconds: seconds(sql`a.median`),
      min_seconds: seconds(sql`a.least`),
      max_seconds: seconds(sql`a.most`),
    },
  },
  heartbeats_refused: {
    from: 'refused r',
    when: sql`r.heartbeats >= ${sql.lit((T.heartbeatsRefusedPerMinute * T.refusalsSeconds) / 60)}`,
    evidence: { refused: sql`r.heartbeats`, last_refused_at: rfc3339(sql`r.heartbeat_at`) },
  },
};
