import { sql } from 'kysely';
import { type Database, within } from '../db/connect.ts';
import { cancelSession } from '../queue/cancel-session.ts';
import { lockSession } from './lock.ts';
import { type Session, type SessionRow, sessionAnswer, sessionNotFound, toSession } from './session.ts';
import { statusToStore, storeEvents } from './store.ts';

const TERMINATED = { status: 'terminated', stopReason: null, openCalls: [] } as const;

/**
 * Ends a session for good: it takes no more events, its open calls are never answered, and its work is cancelled; a worker hears of it by
 * the stream, at once. Once more changes nothing. Refuses: not_found.
 */
export async function archiveSession(database: Database, id: string): Promise<Session> {
  const { sessions } = database.names;
  return database.transaction(async (transaction) => {
    const bound = within(database, transaction);
    const locked = await lockSession(bound, id);
    if (locked === undefined) throw sessionNotFound(id);
    if (locked.status === 'terminated') return toSession(locked.session);
    const turn = { ...TERMINATED, workerTools: locked.workerTools };
    const told = statusToStore({ type: 'session.status_terminated' }, locked.now);
    await storeEvents(bound, locked, [told], turn, { isHeld: false, armCount: 0 });
    await cancelSession(bound, locked.session.environmentId, id);
    const [row] = await bound.rows(sql<SessionRow>`select ${sessionAnswer('s')} from ${sessions} s where s.id = ${id}`);
    if (row === undefined) throw sessionNotFound(id);
    return toSession(row);
  });
}

/** Events are removed in steps, so that none runs into the statement timeout. */
const EVENTS_PER_STATEMENT_MAX = 5_000;

/** Removes a session with its events, and cancels its work. Refuses: not_found. */
export async function deleteSession(database: Database, id: string): Promise<void> {
  const { sessions } = database.names;
  await database.transaction(async (transaction) => {
    const bound = within(database, transaction);
    const locked = await lockSession(bound, id);
    if (locked === undefined) throw sessionNotFound(id);
    await cancelSession(bound, locked.session.environmentId, id);
    await removeEvents(bound, id);
    await bound.rows(sql`delete from ${sessions} s where s.id = ${id}`);
  });
}

async function removeEvents(database: Database, id: string): Promise<void> {
  const { sessionEvents } = database.names;
  const removal = sql<{ seq: string }>`
    with old as materialized (
      select e.seq from ${sessionEvents} e where e.session_id = ${id} order by e.seq limit ${sql.lit(EVENTS_PER_STATEMENT_MAX)}
    )
    delete from ${sessionEvents} e using old o where e.session_id = ${id} and e.seq = o.seq returning e.seq::text as seq`;
  while ((await database.rows(removal)).length > 0);
}
