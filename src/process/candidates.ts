import { sql } from 'kysely';
import type { Database } from '../db/connect.ts';
import { rfc3339 } from '../db/sql.ts';
import type { WorkKind } from '../queue/items.ts';
import { type CapSettings, isLapsed, queuedItems, refusedItems } from './free-items.ts';
import type { Lease } from './lease.ts';

/** An item that could be claimed when it was read. Owns nothing. */
export type Candidate = {
  readonly seq: string;
  readonly id: string;
  readonly environmentId: string;
  readonly sessionId: string;
  readonly kind: WorkKind;
  /** How often it had been handed out. */
  readonly handOut: number;
};

/** A lease that had run out when it was read. Owns nothing. */
export type ExpiredLease = Lease & { readonly id: string; readonly environmentId: string; readonly kind: WorkKind };

/** The queued item that a claim of this kind would take first; null when there is none. A read. */
export async function nextEligible(database: Database, kind: WorkKind, caps: CapSettings): Promise<Candidate | null> {
  const { names } = database;
  const only = sql`w.kind = ${kind}`;
  const sorts = kind === 'tool_exec' ? [refusedItems(names, only, caps)] : [];
  const [row] = await database.rows(sql<Candidate>`
    select w.seq::text as seq, w.id, w.environment_id as "environmentId", w.session_id as "sessionId", w.kind,
      w.hand_out_count as "handOut"
    from (
      select s.seq from (${sql.join([queuedItems(names, only), ...sorts], sql` union all `)}) s
      order by s.priority desc, s.seq limit 1
    ) c join ${names.workItems} w on w.seq = c.seq`);
  return row === undefined ? null : Object.freeze(row);
}

/** Leases of these kinds that have run out, the oldest items first, at most `limit`. A read. */
export async function expired(
  database: Database,
  kinds: readonly WorkKind[],
  limit: number,
): Promise<readonly ExpiredLease[]> {
  const rows = await database.rows(sql<Omit<ExpiredLease, 'askedAtMs'>>`
    select w.seq::text as seq, w.id, w.environment_id as "environmentId", w.kind, w.worker_id as "workerId",
      w.hand_out_count as "handOut", ${rfc3339(sql`w.lease_expires_at`)} as "expiresAt", w.lease_ttl_seconds as "ttlSeconds"
    from ${database.names.workItems} w
    where ${isLapsed} and w.kind = any(${[...kinds]}::text[])
    order by w.seq limit ${limit}`);
  return rows.map((row) => Object.freeze({ ...row, askedAtMs: 0 }));
}
