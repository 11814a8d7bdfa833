import { sql } from 'kysely';
import type { Database } from '../db/connect.ts';
import { environmentNotFound } from '../queue/errors.ts';
import { checkProof, type LockProof } from './lock.ts';

/**
 * Lets a lock go: true when this call did, false when the token does not hold it (any more), which changes nothing, so that a
 * release whose answer was lost may be sent again. Refuses: environment_not_found, invalid_request.
 */
export async function releaseLock(database: Database, proof: LockProof): Promise<boolean> {
  checkProof(proof);
  const { environmentId, name, token } = proof;
  const { environments, locks } = database.names;
  const [row] = await database.rows(sql<{ isReleased: boolean }>`
    with released as (
      update ${locks} l set expires_at = clock_timestamp()
      where l.environment_id = ${environmentId} and l.name = ${name} and l.token = ${token}
        and l.expires_at > clock_timestamp()
      returning l.token
    )
    select r.token is not null as "isReleased"
    from ${environments} e left join released r on true where e.id = ${environmentId}`);
  if (row === undefined) throw environmentNotFound(environmentId);
  return row.isReleased;
}
