import { sql } from 'kysely';
import type { Database } from '../db/connect.ts';
import { environmentNotFound, QueueError } from '../queue/errors.ts';
import { checkText, LIMITS } from '../queue/limits.ts';
import {
  checkLock,
  checkLockTtl,
  LOCK_COLUMNS,
  type Lock,
  type LockRef,
  type LockRow,
  lockFields,
  toLock,
} from './lock.ts';

export type LockRequest = LockRef & {
  /** Who asks, 1 to 256 characters: the same owner asking again gets the same token. */
  readonly owner: string;
  /** 1 to 3600; default 60. */
  readonly ttlSeconds?: number | undefined;
};

/**
 * Takes a lock that is free or has expired, under a new token. The owner who holds it gets the token it has, and the longer of
 * the two expiries. Also in an archived environment, where work goes on. Refuses: environment_not_found, invalid_request; conflict while another owner holds it, with `locked`,
 * `expires_at` and `expires_in_ms` in its details.
 */
export async function acquireLock(database: Database, request: LockRequest): Promise<Lock> {
  const lock = await takeLock(database, request);
  if (lock.owner === request.owner) return lock;
  const { expiresAt, expiresInMs } = lock;
  throw new QueueError('conflict', `lock ${JSON.stringify(request.name)} is held by another owner`, {
    details: { error_code: 'lock_held', locked: true, expires_at: expiresAt, expires_in_ms: expiresInMs },
  });
}

/**
 * The same, answering the lock as it is now, whoever holds it. What another holds is written as it was: only a row that was locked tells the loser of a race what
 * the winner committed. The token is drawn under that lock, or a holder could have a lower one than the holder before.
 */
export async function takeLock(
  database: Database,
  { environmentId, name, owner, ttlSeconds = LIMITS.lockSecondsDefault }: LockRequest,
): Promise<Lock> {
  checkLock({ environmentId, name });
  checkText('owner', owner, LIMITS.lockOwnerCharacters);
  checkLockTtl(ttlSeconds);
  const { environments, locks } = database.names;
  const nextToken = sql`nextval(${sql.lit(`${database.schema}.lock_tokens`)}::regclass)`;
  const ttl = sql`${ttlSeconds}::integer * interval '1 second'`;
  const [row] = await database.rows(sql<LockRow>`
    with place as materialized (
      select e.id from ${environments} e where e.id = ${environmentId} for key share
    ), taken as (
      insert into ${locks} as l (environment_id, name, owner, token, acquired_at, expires_at)
      select p.id, ${name}, ${owner}, ${nextToken}, clock_timestamp(), clock_timestamp() + ${ttl} from place p
      on conflict (environment_id, name) do update
      set (owner, token, acquired_at, expires_at) = (
        select case when n.is_free then excluded.owner else l.owner end,
          case when n.is_free then ${nextToken} else l.token end,
          case when n.is_free then n.at else l.acquired_at end,
          case when n.is_free then n.at + ${ttl}
            when l.owner = excluded.owner then greatest(l.expires_at, n.at + ${ttl}) else l.expires_at end
        from (select c.at, l.expires_at <= c.at as is_free from (select clock_timestamp() as at) c) n
      )
      returning ${LOCK_COLUMNS}
    )
    select ${lockFields(sql`t`)} from taken t`);
  if (row === undefined) throw environmentNotFound(environmentId);
  return toLock(environmentId, row);
}
