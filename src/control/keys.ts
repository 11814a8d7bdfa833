import { sql } from 'kysely';
import type { Database } from '../db/connect.ts';
import { parseCursor, toPage } from '../queue/cursor.ts';
import { environmentNotFound, QueueError } from '../queue/errors.ts';
import { hashSecret, mintId } from '../queue/ids.ts';
import { checkInteger, checkText, LIMITS } from '../queue/limits.ts';
import {
  changeStamp,
  checkKeyRef,
  hintOf,
  type IssuedKey,
  inTurn,
  isOf,
  KEY,
  type Key,
  type KeyRef,
  type KeyRole,
  keyAnswer,
  keyNotFound,
  liveKeys,
  mintKey,
  tooManyKeys,
} from './key-rows.ts';

export type NewKey = {
  /** Null: an API key for the whole deployment. */
  readonly environmentId: string | null;
  /** 1 to 128 characters. */
  readonly name: string;
  /** One that was minted here before; absent: it is minted now. */
  readonly key?: string | undefined;
  /** 1 s to ten years; default a year. */
  readonly expiresInSeconds?: number | undefined;
  /** API keys only; default operator. */
  readonly role?: KeyRole | undefined;
  /** Environment keys only, 0 to a day; default 0. */
  readonly minQueuedAgeMs?: number | undefined;
};

/** True once an API key was issued here, whatever became of it. */
export async function hasApiKey(database: Database): Promise<boolean> {
  const apiKeys = database.kysely.selectFrom('credentials').select('id').where('environment_id', 'is', null);
  return (await database.rows(apiKeys.limit(1))).length > 0;
}

/**
 * Issues a key: for the workers of one environment, or an API key. At most 1000 of an environment, and 1000 API keys, are live at
 * once. Refuses: environment_not_found, conflict at that limit, invalid_request.
 */
export async function issueKey(database: Database, request: NewKey): Promise<IssuedKey> {
  const { environmentId, name, role, minQueuedAgeMs, expiresInSeconds = LIMITS.keySecondsDefault } = request;
  checkText('name', name, LIMITS.nameCharacters);
  if (environmentId !== null) checkText('environmentId', environmentId, LIMITS.idCharacters);
  checkInteger('expiresInSeconds', expiresInSeconds, 1, LIMITS.keySeconds);
  if (minQueuedAgeMs !== undefined) checkInteger('minQueuedAgeMs', minQueuedAgeMs, 0, LIMITS.minQueuedAgeMs);
  if (role !== undefined && !['operator', 'read_only'].includes(role))
    throw new QueueError('invalid_request', 'role must be one of operator, read_only');
  if (role !== undefined && environmentId !== null)
    throw new QueueError('invalid_request', 'role is for API keys: an environment key has none');
  if (minQueuedAgeMs !== undefined && environmentId === null)
    throw new QueueError('invalid_request', 'minQueuedAgeMs is for environment keys: no worker uses an API key');
  if (request.key !== undefined && !KEY.test(request.key))
    throw new QueueError('invalid_request', 'key must be one that was minted here');
  const key = request.key ?? mintKey(environmentId);
  const { credentials } = database.names;
  return inTurn(database, environmentId, async (bound) => {
    const [row] = await bound.rows(sql<Key>`
      insert into ${credentials} as c (id, environment_id, name, key_hash, hint, role, min_queued_age_ms, expires_at)
      select ${mintId('key')}, ${environmentId}, ${name}, ${hashSecret(key)}, ${hintOf(key)},
        ${role ?? 'operator'}, ${minQueuedAgeMs ?? null}::integer, clock_timestamp() + ${expiresInSeconds} * interval '1 second'
      where ${liveKeys(database, environmentId)} < ${sql.lit(LIMITS.keysPerEnvironment)}
      returning ${keyAnswer('c')}`);
    if (row === undefined) throw tooManyKeys(environmentId);
    return { ...row, key };
  });
}

/**
 * Issues a key to take another's place: its name, role and environment. The old one stays valid for `overlapSeconds` (0 to 30
 * days, default an hour) or until it expires, whichever comes first. Refuses: not_found; conflict when the old one is revoked or
 * expired already, or when both would be more than may be live; environment_not_found; invalid_request.
 */
export async function rotateKey(
  database: Database,
  { environmentId, id }: KeyRef,
  options: { readonly overlapSeconds?: number | undefined; readonly expiresInSeconds?: number | undefined } = {},
): Promise<IssuedKey> {
  const { overlapSeconds = LIMITS.overlapSecondsDefault, expiresInSeconds = LIMITS.keySecondsDefault } = options;
  checkKeyRef({ environmentId, id });
  checkInteger('overlapSeconds', overlapSeconds, 0, LIMITS.overlapSeconds);
  checkInteger('expiresInSeconds', expiresInSeconds, 1, LIMITS.keySeconds);
  const key = mintKey(environmentId);
  const { credentials } = database.names;
  type Outcome = { revoked: boolean; expired: boolean; id: string | null } & Omit<Key, 'id'>;
  return inTurn(database, environmentId, async (bound) => {
    const [row] = await bound.rows(sql<Outcome>`
      with current as materialized (
        select c.id, c.environment_id, c.name, c.role, c.min_queued_age_ms, c.revoked_at is not null as revoked,
          c.expires_at <= clock_timestamp() as expired
        from ${credentials} c where c.id = ${id} and ${isOf('c', environmentId)} for no key update
      ), made as (
        insert into ${credentials} as c (id, environment_id, name, key_hash, hint, role, min_queued_age_ms, expires_at)
        select ${mintId('key')}, o.environment_id, o.name, ${hashSecret(key)}, ${hintOf(key)}, o.role,
          o.min_queued_age_ms, clock_timestamp() + ${expiresInSeconds} * interval '1 second'
        from current o
        where not o.revoked and not o.expired
          and ${liveKeys(database, environmentId)} < ${LIMITS.keysPerEnvironment + (overlapSeconds === 0 ? 1 : 0)}::integer
        returning ${keyAnswer('c')}
      ), replaced as (
        update ${credentials} c
        set expires_at = least(c.expires_at, clock_timestamp() + ${overlapSeconds} * interval '1 second'),
          changed_at = ${changeStamp('c')}
        from current o where c.id = o.id and exists (select from made)
      )
      select o.revoked, o.expired, m.* from current o left join made m on true`);
    if (row === undefined) throw keyNotFound(id);
    const { revoked, expired, id: newId, ...made } = row;
    if (newId !== null) return { ...made, id: newId, key };
    if (revoked || expired)
      throw new QueueError('conflict', `key ${id} is ${revoked ? 'revoked' : 'expired'}: issue a new one`);
    throw tooManyKeys(environmentId, 'revoke one first, or rotate without an overlap');
  });
}

/**
 * Revokes a key, for good: every replica refuses it within a second, also the very key that asked. Once more changes nothing.
 * Refuses: not_found.
 */
export async function revokeKey(database: Database, { environmentId, id }: KeyRef): Promise<Key> {
  checkKeyRef({ environmentId, id });
  const { credentials } = database.names;
  const [row] = await database.rows(sql<Key>`
    update ${credentials} c
    set revoked_at = coalesce(c.revoked_at, clock_timestamp()),
      changed_at = case when c.revoked_at is null then ${changeStamp('c')} else c.changed_at end
    where c.id = ${id} and ${isOf('c', environmentId)}
    returning ${keyAnswer('c')}`);
  if (row === undefined) throw keyNotFound(id);
  return row;
}

export type KeyPage = { readonly items: readonly Key[]; readonly nextPage: string | null };

/**
 * A page of an environment's keys, or (null) of the API keys, newest first, with those revoked and expired. `limit` 1 to 1000.
 * Refuses: environment_not_found; invalid_request for a cursor that no page gave out.
 */
export async function listKeys(
  database: Database,
  environmentId: string | null,
  { limit, page }: { limit: number; page?: string | undefined },
): Promise<KeyPage> {
  if (environmentId !== null) checkText('environmentId', environmentId, LIMITS.idCharacters);
  checkInteger('limit', limit, 1, LIMITS.pageItems);
  const after = page === undefined ? undefined : parseCursor(page, /^key_[A-Za-z0-9_-]{1,64}$/);
  const { credentials, environments } = database.names;
  const rows = await database.rows(sql<{ found: boolean; id: string | null } & Omit<Key, 'id'>>`
    select ${environmentId}::text is null or exists (select from ${environments} e where e.id = ${environmentId}) as found,
      ${keyAnswer('k')}
    from (select 1) one left join lateral (
      select c.* from ${credentials} c
      where ${isOf('c', environmentId)}
        ${after === undefined ? sql`` : sql`and (c.created_at, c.id) < (${after.createdAt}::timestamptz, ${after.key}::text)`}
      order by c.created_at desc, c.id desc limit ${limit + 1}::integer
    ) k on true
    order by k.created_at desc, k.id desc`);
  if (!rows[0]?.found) throw environmentNotFound(String(environmentId));
  const items = rows.flatMap(({ found: _, id, ...row }): Key[] => (id === null ? [] : [{ ...row, id }]));
  return toPage(items, limit, ({ createdAt, id }) => ({ createdAt, key: id }));
}
