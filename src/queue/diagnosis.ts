import { sql } from 'kysely';
import type { Database } from '../db/connect.ts';
import { environmentNotFound } from './errors.ts';
import { type FindingCode, facts, RULES, THRESHOLDS } from './evidence.ts';
import type { QueueStats } from './stats.ts';

/** Counts, durations with their unit in the name, and instants. */
export type Evidence = Readonly<Record<string, number | string | null>>;

export type Finding = {
  readonly code: FindingCode;
  /** For a person to read. */
  readonly message: string;
  readonly evidence: Evidence;
};

export type Diagnosis = QueueStats & {
  /** Empty: no problem found. */
  readonly findings: readonly Finding[];
};

const minutes = (seconds: number): string => `${seconds / 60} minutes`;
const T = THRESHOLDS;

const MESSAGES: Readonly<Record<FindingCode, (evidence: Evidence) => string>> = {
  archived: (e) => `The environment was archived at ${e.archived_at}: it takes no new work; what is there goes on.`,
  paused: (e) => `The environment was paused at ${e.paused_at}: nothing is handed out until it is resumed.`,
  no_worker_polls: (e) =>
    e.last_poll_at === null
      ? `${e.free} items wait to be handed out, and no poll is remembered: start a worker with this environment's id and key.`
      : `${e.free} items wait to be handed out, and nobody has polled for ${T.noPollSeconds} s: the last poll was at ${e.last_poll_at}.`,
  credentials_refused: (e) =>
    `${e.refused} polls were refused for their credential in the last ${minutes(T.refusalsSeconds)}: some worker's key is ` +
    'missing, unknown, expired, revoked or for another environment, and its process has ended.',
  age_floor: (e) =>
    `Every key of the environment takes only work that has been queued for a time, ${e.min_queued_age_ms} ms at least; the ` +
    `oldest that is free has been for ${e.oldest_queued_age_ms} ms.`,
  not_yet_due: (e) => `All of the ${e.queued} queued items are for later: the earliest for ${e.earliest_due_at}.`,
  all_set_aside: (e) =>
    `Nothing is queued or held, and ${e.set_aside} items are set aside, exhausted or failed: they wait for somebody's decision.`,
  reservations_lapse: (e) =>
    `${e.lapsed} hand-outs of the last ${minutes(T.lapsesSeconds)} lapsed before they were acked, ${e.acked} were acked: workers take ` +
    'work and do not get to it, or the answers do not reach them, or the reservation is too short.',
  acked_never_beat: (e) =>
    `${e.lapsed} hand-outs of the last ${minutes(T.lapsesSeconds)} were acked and lapsed without a heartbeat: what workers start for ` +
    'them does not come up, or not within the startup lease.',
  runs_end_at_same_age: (e) =>
    `${e.runs} runs of the last day went silent at about the same age, ${e.median_seconds} s after their first heartbeat: a time limit ` +
    "on the worker's side, of a container or a job, ends them.",
  heartbeats_refused: (e) =>
    `${e.refused} heartbeats were refused in the last ${minutes(T.refusalsSeconds)}: two holders beat for the same items, or workers ` +
    'go on with items that were handed on.',
};

/**
 * Why work does not move on the wire lane, as far as the database shows, with the figures of stats. When each finding is made stands
 * in `RULES`, by the limits in `THRESHOLDS`: heartbeats, say, from 50 refused within 10 minutes. Refuses:
 * environment_not_found.
 */
export async function diagnose(database: Database, environmentId: string): Promise<Diagnosis> {
  const found = Object.entries(RULES).map(([code, { from, when, evidence }], place) => {
    const pairs = Object.entries(evidence).map(([name, value]) => sql`${sql.lit(name)}, ${value}`);
    return sql`select ${sql.lit(code)} as code, ${sql.lit(place)} as place, json_build_object(${sql.join(pairs)}) as evidence
      from ${sql.raw(from)} where ${when}`;
  });
  const [row] = await database.rows(sql<QueueStats & { found: string }>`
    with ${facts(database, environmentId)}
    select f."environmentId", f.depth, f.pending, f."oldestQueuedAt", f."workersPolling", (
      select coalesce(json_agg(json_build_object('code', n.code, 'evidence', n.evidence) order by n.place), '[]')::text
      from (${sql.join(found, sql` union all `)}) n
    ) as found
    from figures f`);
  if (row === undefined) throw environmentNotFound(environmentId);
  const { found: findings, ...figures } = row;
  return { ...figures, findings: JSON.parse(findings).map(inWords) };
}

const inWords = ({ code, evidence }: { code: FindingCode; evidence: Evidence }): Finding => ({
  ...{ code, message: MESSAGES[code](evidence), evidence },
});
