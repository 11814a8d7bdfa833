import { sql } from 'kysely';
import type { Database } from '../db/connect.ts';
import { rfc3339 } from '../db/sql.ts';
import { isHeld, isOwned, type Lease, leaseLost } from './lease.ts';

export type Extended = {
  readonly lease: Lease;
  /** Somebody asked for the item to end: its holder is to wind down. */
  readonly isCancelRequested: boolean;
};

/**
 * Renews a lease by its proof and answers the next one, which is always another; a lease is never shortened. One that has lapsed is
 * renewed, too, while nobody took the item over. `isRetry`: the renewal before was not answered, and may have been done. Writes no
 * indexed column. Throws LeaseError lease_lost.
 */
export async function extend(
  database: Database,
  lease: Lease,
  ttlSeconds: number,
  { isRetry = false }: { readonly isRetry?: boolean } = {},
): Promise<Extended> {
  const askedAtMs = performance.now();
  const [row] = await database.rows(sql<{ expiresAt: string; isCancelRequested: 'true' | 'false' }>`
    update ${database.names.workItems} w
    set lease_expires_at = greatest(w.lease_expires_at + interval '1 microsecond', clock_timestamp() + ${ttlSeconds} * interval '1 second'),
      lease_ttl_seconds = ${ttlSeconds}
    where ${isRetry ? isHeld(lease) : isOwned(lease)}
    returning ${rfc3339(sql`w.lease_expires_at`)} as "expiresAt", (w.cancel_requested_at is not null)::text as "isCancelRequested"`);
  if (row === undefined) throw leaseLost(lease);
  return {
    lease: Object.freeze({ ...lease, expiresAt: row.expiresAt, askedAtMs, ttlSeconds }),
    isCancelRequested: row.isCancelRequested === 'true',
  };
}

/** Whether somebody asked for the held item to end. Throws LeaseError lease_lost. */
export async function cancelRequested(database: Database, lease: Lease): Promise<boolean> {
  const [row] = await database.rows(sql<{ isCancelRequested: 'true' | 'false' }>`
    select (w.cancel_requested_at is not null)::text as "isCancelRequested"
    from ${database.names.workItems} w where ${isOwned(lease)}`);
  if (row === undefined) throw leaseLost(lease);
  return row.isCancelRequested === 'true';
}
