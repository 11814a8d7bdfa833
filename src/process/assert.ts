import { sql } from 'kysely';
import { type CallerTransaction, type Database, within } from '../db/connect.ts';
import { isNoTransaction } from '../db/failures.ts';
import { QueueError } from '../queue/errors.ts';
import { isOwned, type Lease, leaseLost } from './lease.ts';

/**
 * Locks the item in the caller's transaction if the proof is good: it stays so until the transaction ends, also past the lease's
 * own end, since a claim passes the row over. Two statements. Refuses: invalid_request outside a transaction, where the proof would be over before it was
 * answered. Throws LeaseError lease_lost.
 */
export async function assertOwned(database: Database, lease: Lease, transaction: CallerTransaction): Promise<void> {
  const { rows, names } = within(database, transaction);
  // Only in a transaction a table may be locked. This lock is the one that any read takes.
  await rows(sql`lock table ${names.workItems} in access share mode`).catch((error: unknown) => {
    if (!isNoTransaction(error)) throw error;
    throw new QueueError('invalid_request', 'assert needs a transaction: without one it would prove nothing', {
      cause: error,
    });
  });
  const [row] = await rows(sql`select from ${names.workItems} w where ${isOwned(lease)} for no key update`);
  if (row === undefined) throw leaseLost(lease);
}
