import { sql } from 'kysely';
import type { Database } from '../db/connect.ts';
import { environmentNotFound, QueueError } from '../queue/errors.ts';
import { LIMITS } from '../queue/limits.ts';
import {
  checkLockTtl,
  checkProof,
  LOCK_COLUMNS,
  type Lock,
  type LockProof,
  type LockRow,
  lockFields,
  toLock,
} from './lock.ts';

/**
 * Extends a lock that its token still holds, never shortening it. `ttlSeconds` 1 to 3600, default 60. Refuses: environment_not_found, invalid_request; conflict once it
 * has expired, was released or is another's: it has to be acquired again.
 */
export async function renewLock(
  database: Database,
  proof: LockProof,
  ttlSeconds: number = LIMITS.lockSecondsDefault,
): Promise<Lock> {
  checkProof(proof);
  checkLockTtl(ttlSeconds);
  const { environmentId, name, token } = proof;
  const { environments, locks } = database.names;
  const [row] = await database.rows(sql<{ isRenewed: boolean } & LockRow>`
    with renewed as (
      update ${locks} l
      set expires_at = greatest(l.expires_at, clock_timestamp() + ${ttlSeconds}::integer * interval '1 second')
      where l.environment_id = ${environmentId} and l.name = ${name} and l.token = ${token}
        and l.expires_at > clock_timestamp()
      returning ${LOCK_COLUMNS}
    )
    select r.name is not null as "isRenewed", ${lockFields(sql`r`)}
    from ${environments} e left join renewed r on true where e.id = ${environmentId}`);
  if (row === undefined) throw environmentNotFound(environmentId);
  if (row.isRenewed) return toLock(environmentId, row);
  throw new QueueError('conflict', `lock ${JSON.stringify(name)} is no longer held by this token`, {
    details: { error_code: 'lock_lost' },
  });
}

export const isLockLost = (error: unknown): boolean =>
  error instanceof QueueError && error.details?.error_code === 'lock_lost';
