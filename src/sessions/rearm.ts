import { type RawBuilder, sql } from 'kysely';
import { type Database, within } from '../db/connect.ts';
import type { TableNames } from '../db/sql.ts';
import { QueueError } from '../queue/errors.ts';
import type { WorkState } from '../queue/items.ts';
import { arm } from './arm.ts';
import { type LockedSession, lockSession } from './lock.ts';
import { sessionTopic, type StopReason } from './session.ts';
import { type Arming, statusToStore, storeEvents } from './store.ts';
import { needsWorker, statusEvent } from './turn.ts';

/** From one lost worker to the next hand-out: a second, doubled each time, to a minute. */
const DELAY_SECONDS_MAX = 60;
/** Lost so often without a result, it is left to somebody to look at: a message or an interrupt arms it again. */
export const ARMS_MAX = 10;
/** An agent that says nothing for so long holds no worker: the turn counts as over, until its next event. */
export const QUIET_SECONDS = 300;
const SESSIONS_PER_PASS_MAX = 100;

/** Calls are open, and no item brings a worker. */
const unserved = ({ sessions, workItems }: TableNames) => sql`${sessions} s
  where s.needs_worker and not s.is_held
    and not exists (select from ${workItems} w where w.environment_id = s.environment_id and w.session_id = s.id
      and w.kind = 'tool_exec' and w.state in ('queued', 'starting', 'active'))`;

const quiet = ({ sessions }: TableNames) => sql`${sessions} s
  where s.status = 'running' and s.last_event_at < statement_timestamp() - ${sql.lit(QUIET_SECONDS)} * interval '1 second'`;

/** Whether there is something to do for a session. */
export const hasUnserved = (names: TableNames): RawBuilder<boolean> =>
  sql`(exists (select from ${unserved(names)}) or exists (select from ${quiet(names)}))`;

export type Rearmed = { readonly topics: readonly string[]; readonly more: boolean };

/**
 * The background's look at sessions that no event will move. One whose calls are open and whose worker stopped or was lost gets
 * another, with a delay; not where an operator stopped it (or set a cap on its hand-outs), until a message, an interrupt or a new call. One whose agent has gone
 * quiet is idle. Any number of replicas may look: who has locked the session decides, and the others pass it over.
 */
export async function rearmSessions(database: Database): Promise<Rearmed> {
  const found = await database.rows(sql<{ id: string; isQuiet: boolean }>`
    (select s.id, false as "isQuiet" from ${unserved(database.names)} limit ${sql.lit(SESSIONS_PER_PASS_MAX)})
    union all
    (select s.id, true from ${quiet(database.names)} order by s.last_event_at limit ${sql.lit(SESSIONS_PER_PASS_MAX)})`);
  const topics: string[] = [];
  let changed = 0;
  for (const { id, isQuiet } of found) {
    const outcome = await (isQuiet ? endTurn(database, id) : rearm(database, id));
    if (outcome !== 'nothing') changed++;
    if (outcome === 'told') topics.push(sessionTopic(id));
  }
  // What others hold is found again and again: it waits for the next pass.
  return { topics, more: changed > 0 && found.length >= SESSIONS_PER_PASS_MAX };
}

/** `told`: there is an event, for those who stream the session. */
type Outcome = 'nothing' | 'changed' | 'told';

const locking = (
  database: Database,
  id: string,
  run: (bound: Database, locked: LockedSession) => Promise<Outcome>,
): Promise<Outcome> =>
  database.transaction(async (transaction) => {
    const bound = within(database, transaction);
    const locked = await lockSession(bound, id, 'skip');
    return locked === undefined ? 'nothing' : run(bound, locked);
  });

const endTurn = (database: Database, id: string): Promise<Outcome> =>
  locking(database, id, async (bound, locked) => {
    if (locked.status !== 'running' || locked.quietSeconds < QUIET_SECONDS) return 'nothing';
    return tell(bound, locked, { type: 'end_turn' }, locked);
  });

const rearm = (database: Database, id: string): Promise<Outcome> =>
  locking(database, id, async (bound, locked) => {
    const { isHeld, armCount, now, session } = locked;
    if (isHeld || !needsWorker(locked)) return 'nothing';
    const hold = async (): Promise<Outcome> => {
      await storeEvents(bound, locked, [], locked, { isHeld: true, armCount });
      return 'changed';
    };
    const last = await lastItem(bound, locked);
    if (last !== undefined && LIVE.has(last.state)) return 'nothing';
    if (last !== undefined && isDecided(last)) return hold();
    if (armCount >= ARMS_MAX) return tell(bound, locked, { type: 'retries_exhausted' }, { isHeld: true, armCount });
    const delaySeconds = Math.min(DELAY_SECONDS_MAX, 2 ** armCount);
    try {
      await arm(bound, session, { notBefore: new Date(Date.parse(now) + delaySeconds * 1_000).toISOString() });
    } catch (error) {
      if (error instanceof QueueError && error.code === 'environment_archived') return hold();
      throw error;
    }
    await storeEvents(bound, locked, [], locked, { isHeld, armCount: armCount + 1 });
    return 'changed';
  });

const LIVE: ReadonlySet<WorkState> = new Set(['queued', 'starting', 'active']);
const DECISIONS: ReadonlySet<string> = new Set(['operator', 'cancelled', 'exhausted', 'failed']);

type LastItem = {
  readonly state: WorkState;
  readonly stopReason: string | null;
  /** Also of what was abandoned instead of wound down. */
  readonly stopRequestedBy: string | null;
};

/** Whether somebody decided that it is not to go on by itself. */
const isDecided = ({ stopReason, stopRequestedBy }: LastItem): boolean =>
  DECISIONS.has(stopReason ?? '') || (stopReason === 'abandoned' && stopRequestedBy === 'operator');

async function tell(
  database: Database,
  locked: LockedSession,
  stopReason: StopReason,
  { isHeld, armCount }: Arming,
): Promise<Outcome> {
  const turn = { ...locked, status: 'idle', stopReason } as const;
  const told = statusEvent(locked, turn);
  const events = told === null ? [] : [statusToStore(told, locked.now)];
  await storeEvents(database, locked, events, turn, { isHeld, armCount });
  return 'told';
}

async function lastItem(database: Database, { session }: LockedSession) {
  const { workItems } = database.names;
  const [row] = await database.rows(sql<LastItem>`
    select w.state, w.stop_reason as "stopReason", w.stop_requested_by as "stopRequestedBy" from ${workItems} w
    where w.environment_id = ${session.environmentId} and w.session_id = ${session.id} and w.kind = 'tool_exec'
    order by w.created_at desc, w.seq desc limit 1`);
  return row;
}
