import { timingSafeEqual } from 'node:crypto';
import { sql } from 'kysely';
import { LRUCache } from 'lru-cache';
import type { Database } from '../db/connect.ts';
import { rfc3339 } from '../db/sql.ts';
import { environmentNotFound, QueueError } from '../queue/errors.ts';
import { hashSecret, mintId, mintSecret } from '../queue/ids.ts';
import { checkText, LIMITS } from '../queue/limits.ts';
import { parseSessionsToken } from '../queue/poll.ts';

/** Who calls, as far as a credential tells (contract §2). */
export type Caller =
  | { readonly kind: 'api' }
  | { readonly kind: 'environment'; readonly environmentId: string }
  | { readonly kind: 'session'; readonly environmentId: string; readonly workId: string };

export type IssuedKey = {
  readonly id: string;
  readonly name: string;
  /** Shown this once; only its hash is kept. */
  readonly key: string;
  readonly expiresAt: string;
};

const ENVIRONMENT_KEY_PREFIX = 'lhe_';
const API_KEY_PREFIX = 'lhk_';
const KEY = /^lh[ek]_[A-Za-z0-9_-]{43}$/;
const KEY_DAYS = 365;

export const mintEnvironmentKey = (): string => ENVIRONMENT_KEY_PREFIX + mintSecret();
export const mintApiKey = (): string => API_KEY_PREFIX + mintSecret();

/**
 * Issues a key that is valid for a year: for one environment, or (`environmentId` null) an API key for the whole deployment.
 * Refuses: environment_not_found, invalid_request.
 */
export async function issueKey(
  database: Database,
  { environmentId, name, key }: { environmentId: string | null; name: string; key?: string },
): Promise<IssuedKey> {
  checkText('name', name, LIMITS.nameCharacters);
  if (environmentId !== null) checkText('environmentId', environmentId, LIMITS.idCharacters);
  if (key !== undefined && !KEY.test(key))
    throw new QueueError('invalid_request', 'key must be one that was minted here');
  const { credentials, environments } = database.names;
  const minted = key ?? (environmentId === null ? mintApiKey() : mintEnvironmentKey());
  const [row] = await database.rows(sql<{ id: string; expiresAt: string }>`
    insert into ${credentials} as c (id, environment_id, name, key_hash, expires_at)
    select ${mintId('key')}, ${environmentId}, ${name}, ${hashSecret(minted)},
      clock_timestamp() + ${sql.lit(KEY_DAYS)} * interval '1 day'
    where ${environmentId}::text is null or exists (select from ${environments} e where e.id = ${environmentId})
    returning c.id, ${rfc3339(sql`c.expires_at`)} as "expiresAt"`);
  if (row === undefined) throw environmentNotFound(String(environmentId));
  return { id: row.id, name, key: minted, expiresAt: row.expiresAt };
}

/** True when somebody can administer this deployment without a key of the process's own. */
export async function hasApiKey(database: Database): Promise<boolean> {
  const apiKeys = database.kysely.selectFrom('credentials').select('id').where('environment_id', 'is', null);
  return (await database.rows(apiKeys.limit(1))).length > 0;
}

/** How long a key that was found valid is trusted without asking again: revocation and expiry act within this time. */
const KEY_TRUSTED_MS = 1_000;
const CACHED_MAX = 20_000;

export type CallersOptions = {
  readonly database: Database;
  /** An API key without a row, valid while this process runs with it. */
  readonly operatorKey?: string | undefined;
};

/**
 * Tells callers by their credentials. Only hits are remembered: a key that was issued a moment ago on another replica works at
 * once (contract §2). Undefined for whatever is unknown, expired or revoked, without a difference.
 */
export function createCallers({ database, operatorKey }: CallersOptions) {
  const { workItems, handOuts } = database.names;
  const operatorHash = operatorKey === undefined ? undefined : hashSecret(operatorKey);
  const keys = new LRUCache<string, Caller>({ max: CACHED_MAX, ttl: KEY_TRUSTED_MS });
  // A token is good as long as its item is remembered, and the verb finds out by itself when it no longer is.
  const tokens = new LRUCache<string, Caller>({ max: CACHED_MAX });

  async function byKey(hash: string): Promise<Caller | undefined> {
    const [row] = await database.rows(
      database.kysely
        .selectFrom('credentials')
        .select(['environment_id as environmentId', 'key_hash as keyHash'])
        .where('key_hash', '=', hash)
        .where('revoked_at', 'is', null)
        .where('expires_at', '>', sql<string>`clock_timestamp()`),
    );
    if (row === undefined || !isEqual(row.keyHash, hash)) return undefined;
    const { environmentId } = row;
    return environmentId === null ? { kind: 'api' } : { kind: 'environment', environmentId };
  }

  async function byToken(workId: string, hash: string): Promise<Caller | undefined> {
    const [row] = await database.rows(sql<{ environmentId: string; tokenHash: string | null }>`
      select w.environment_id as "environmentId", w.sessions_token_hash as "tokenHash" from ${workItems} w where w.id = ${workId}
      union all
      select h.environment_id, h.sessions_token_hash from ${handOuts} h where h.work_id = ${workId}`);
    if (row === undefined || !isEqual(row.tokenHash ?? '', hash)) return undefined;
    return { kind: 'session', environmentId: row.environmentId, workId };
  }

  return {
    async identify(credential: string): Promise<Caller | undefined> {
      const hash = hashSecret(credential);
      if (operatorHash !== undefined && isEqual(operatorHash, hash)) return { kind: 'api' };
      const token = parseSessionsToken(credential);
      if (token === undefined && !KEY.test(credential)) return undefined;
      const cache = token === undefined ? keys : tokens;
      const known = cache.get(hash);
      if (known !== undefined) return known;
      const caller = await (token === undefined ? byKey(hash) : byToken(token.workId, token.hash));
      if (caller !== undefined) cache.set(hash, caller);
      return caller;
    },
  };
}

export type Callers = ReturnType<typeof createCallers>;

/** In constant time for texts of one length, which hashes are. */
function isEqual(one: string, other: string): boolean {
  const [a, b] = [Buffer.from(one), Buffer.from(other)];
  return a.length === b.length && timingSafeEqual(a, b);
}
