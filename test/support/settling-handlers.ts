import type { Transaction } from 'kysely';
import type { Handler } from '../../src/index.ts';

type Tables = { settled: { session_id: string; worker_id: string } };

/** For `leasehold runner`: each item leaves one row in `public.settled`, in its settlement's transaction. */
const settling: Handler<Transaction<Tables>> = async ({ sessionId, lease }, { progress }) => {
  // Most of the work is done in the time that it takes; some of it takes longer, so that runners are killed during it, too.
  if (Number(sessionId) % 10 === 0) await new Promise((resolve) => setTimeout(resolve, 20));
  progress();
  return (transaction) =>
    transaction.insertInto('settled').values({ session_id: sessionId, worker_id: lease.workerId }).execute();
};

export const handlers = { model_turn: settling, web_exec: settling };
