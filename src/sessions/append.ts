import { sql } from 'kysely';
import { type Database, within } from '../db/connect.ts';
import { jsonOf } from '../queue/check-enqueue.ts';
import { QueueError } from '../queue/errors.ts';
import { mintId } from '../queue/ids.ts';
import type { Offered, TraceContext } from '../queue/items.ts';
import { LIMITS } from '../queue/limits.ts';
import { arm } from './arm.ts';
import { answerOf, type Sender, type SentEvent } from './events.ts';
import { type LockedSession, lockSession } from './lock.ts';
import { sessionNotFound } from './session.ts';
import { eventJson, type StoredEvent, statusToStore, storeEvents } from './store.ts';
import { type KnownCall, needsWorker, statusEvent, takeEvents } from './turn.ts';

export type Appended = {
  /** The JSON of each event sent, in order; of one that repeats an answer, the stored one's. */
  readonly events: readonly string[];
  /** False where all of them were repeats: nothing was added. */
  readonly isChanged: boolean;
  /** Work that is to be announced after the commit. */
  readonly offered: readonly Offered[];
};

/**
 * Appends 1 to 1000 events, all or nothing, and in the same transaction has a worker for what needs one (one live item a session).
 * Refuses: not_found; invalid_request for a result of a call that is unknown, of another kind, denied or waiting for a confirmation,
 * and for what cannot be stored; session_terminated; environment_archived where a worker is needed.
 */
export async function appendEvents(
  database: Database,
  sessionId: string,
  sent: readonly SentEvent[],
  sender: Sender,
  traceContext?: TraceContext,
): Promise<Appended> {
  if (sent.length < 1 || sent.length > LIMITS.eventsPerCall) {
    throw new QueueError(
      'invalid_request',
      `events must be a list of 1 to ${LIMITS.eventsPerCall}, not ${sent.length}`,
    );
  }
  checkEvents(sent, 'events');
  return database.transaction(async (transaction) => {
    const bound = within(database, transaction);
    const locked = await lockSession(bound, sessionId);
    if (locked === undefined) throw sessionNotFound(sessionId);
    return appendLocked(bound, locked, sent, sender, traceContext);
  });
}

/** Refuses: invalid_request for what would be stored as something else. `where` names the list that they were sent in. */
export function checkEvents(sent: readonly SentEvent[], where: string): void {
  for (const [index, event] of sent.entries()) jsonOf(`${where}.${index}`, event);
}

/** The same for a session that this transaction has locked, and events that were checked. */
export async function appendLocked(
  database: Database,
  locked: LockedSession,
  sent: readonly SentEvent[],
  sender: Sender,
  traceContext?: TraceContext,
  where = 'events',
): Promise<Appended> {
  const { session, now } = locked;
  const events = sent.map((event) => ({ id: mintId('sevt'), sent: event }));
  const { turn, repeats, arms, isProgress } = takeEvents(
    locked,
    events,
    sender,
    await knownCalls(database, locked, sent),
    where,
  );

  const texts: string[] = [];
  const fresh: StoredEvent[] = [];
  for (const [index, { id, sent: event }] of events.entries()) {
    const repeat = repeats[index] ?? null;
    const text = typeof repeat === 'number' ? texts[repeat] : repeat;
    texts.push(text ?? eventJson(id, now, event));
    if (repeat === null) {
      fresh.push({ id, type: event.type, answers: answerOf(event)?.callId ?? null, event: texts[index] ?? '' });
    }
  }
  if (fresh.length === 0) return { events: texts, isChanged: false, offered: [] };
  const told = statusEvent(locked, turn);
  if (told !== null) fresh.push(statusToStore(told, now));
  const isArmed = arms === 'always' || (arms === 'needed' && needsWorker(turn));
  // Also where this ends a hold: who is called again after somebody looked at it has all tries.
  const isAnew = arms === 'always' || isProgress || (isArmed && locked.isHeld);
  // A worker was there after all; what somebody decided stays decided.
  const isRevived = isProgress && locked.stopReason?.type === 'retries_exhausted';
  await storeEvents(database, locked, fresh, turn, {
    isHeld: locked.isHeld && !isArmed && !isRevived,
    armCount: isAnew ? 0 : locked.armCount,
  });
  const offered = isArmed ? await arm(database, session, { isUrgent: arms === 'always', traceContext }) : [];
  return { events: texts, isChanged: true, offered };
}

/** What is stored of the calls that events answer, where the session's row does not say it: of those that are not open, and all verdicts. */
async function knownCalls(
  database: Database,
  { session, openCalls }: LockedSession,
  sent: readonly SentEvent[],
): Promise<ReadonlyMap<string, KnownCall>> {
  const isOpen = new Set(openCalls.map(({ id }) => id));
  const named = sent.flatMap((event) => {
    const answer = answerOf(event);
    return answer === null || (isOpen.has(answer.callId) && event.type !== 'user.tool_confirmation')
      ? []
      : [answer.callId];
  });
  if (named.length === 0) return new Map();
  const { sessionEvents } = database.names;
  const rows = await database.rows(sql<{ id: string; type: string; answerType: string | null; answer: string | null }>`
    select c.id, c.type, a.type as "answerType", a.event as answer
    from ${sessionEvents} c left join ${sessionEvents} a on a.answers = c.id and a.session_id = c.session_id
    where c.id = any(${[...new Set(named)]}::text[]) and c.session_id = ${session.id}
    order by a.seq`);
  const calls = new Map<string, { type: string; answers: { type: string; event: string }[] }>();
  for (const { id, type, answerType, answer } of rows) {
    const call = calls.get(id) ?? { type, answers: [] };
    if (answerType !== null && answer !== null) call.answers.push({ type: answerType, event: answer });
    calls.set(id, call);
  }
  return calls;
}
