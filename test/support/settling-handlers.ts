import { sql } from 'kysely';
import type { CallerTransaction, Handler } from '../../src/index.ts';

/** For `leasehold runner`: each item leaves one row in `public.settled`, in its settlement's transaction. */
const model_turn: Handler = async ({ sessionId, lease }, { progress }) => {
  // Most of the work is done in the time that it takes; some of it takes longer, so that runners are killed during it, too.
  if (Number(sessionId) % 10 === 0) await new Promise((resolve) => setTimeout(resolve, 20));
  progress();
  return (transaction) => insert(transaction, sessionId, lease.workerId);
};

async function insert(transaction: CallerTransaction, sessionId: string, workerId: string): Promise<void> {
  if (!('executeQuery' in transaction)) throw new Error('the queue gives its own transactions');
  await sql`insert into public.settled (session_id, worker_id) values (${sessionId}, ${workerId})`.execute(transaction);
}

export const handlers = { model_turn, web_exec: model_turn };
