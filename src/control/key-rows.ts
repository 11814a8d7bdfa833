import { type RawBuilder, sql } from 'kysely';
import { type Database, within } from '../db/connect.ts';
import { rfc3339 } from '../db/sql.ts';
import { environmentNotFound, QueueError } from '../queue/errors.ts';
import { mintSecret } from '../queue/ids.ts';
import { checkText, LIMITS } from '../queue/limits.ts';

/** What an API key may do: everything, or look. */
export type KeyRole = 'operator' | 'read_only';

/** A key as it is listed: never the key itself, nor its hash. */
export type Key = {
  readonly id: string;
  readonly name: string;
  /** The last four characters; null for keys issued before these were kept. */
  readonly hint: string | null;
  /** Null: an API key, for the whole deployment. */
  readonly environmentId: string | null;
  /** Null: an environment key has none. */
  readonly role: KeyRole | null;
  /** An environment key's workers are offered only what has waited for this long. */
  readonly minQueuedAgeMs: number;
  readonly createdAt: string;
  readonly expiresAt: string;
  /** Written every few seconds. */
  readonly lastUsedAt: string | null;
  readonly revokedAt: string | null;
};

/** Shown this once; only its hash is kept. */
export type IssuedKey = Key & { readonly key: string };

/** A key by its id, where it must be: in an environment, or (null) among the API keys. */
export type KeyRef = { readonly environmentId: string | null; readonly id: string };

export const KEY = /^lh[ek]_[A-Za-z0-9_-]{43}$/;

/** What is kept of a key, to tell it by. */
export const hintOf = (key: string): string => key.slice(-4);

export const mintEnvironmentKey = (): string => `lhe_${mintSecret()}`;
export const mintApiKey = (): string => `lhk_${mintSecret()}`;
export const mintKey = (environmentId: string | null): string =>
  environmentId === null ? mintApiKey() : mintEnvironmentKey();

/** A key's columns as a Key. */
export const keyAnswer = (table: string): RawBuilder<unknown> => {
  const column = (name: string) => sql.ref(`${table}.${name}`);
  return sql`${column('id')}, ${column('name')}, ${column('hint')}, ${column('environment_id')} as "environmentId",
    case when ${column('environment_id')} is null then ${column('role')} end as role,
    coalesce(${column('min_queued_age_ms')}, 0) as "minQueuedAgeMs", ${rfc3339(column('created_at'))} as "createdAt",
    ${rfc3339(column('expires_at'))} as "expiresAt", ${rfc3339(column('last_used_at'))} as "lastUsedAt",
    ${rfc3339(column('revoked_at'))} as "revokedAt"`;
};

/** Keys of an environment, or (null) API keys. */
export const isOf = (table: string, environmentId: string | null): RawBuilder<boolean> => {
  const column = sql.ref(`${table}.environment_id`);
  return environmentId === null ? sql`${column} is null` : sql`${column} = ${environmentId}`;
};

/** How many are live: neither revoked nor expired. */
export const liveKeys = ({ names }: Database, environmentId: string | null): RawBuilder<number> =>
  sql`(select count(*) from ${names.credentials} l
    where ${isOf('l', environmentId)} and l.revoked_at is null and l.expires_at > clock_timestamp())`;

/** When a key was changed: never what it was before, or a replica that trusts it could not tell (see `known-keys.ts`). */
export const changeStamp = (table: string): RawBuilder<string> =>
  sql`greatest(clock_timestamp(), ${sql.ref(`${table}.changed_at`)} + interval '1 microsecond')`;

/**
 * Runs with the live keys of an environment, or the API keys, to itself: what it counts holds until the commit. The lock is a
 * statement of its own, because one statement would count what it saw before it waited. Deleting the environment
 * waits, or was first. Refuses: environment_not_found.
 */
export function inTurn<Result>(
  database: Database,
  environmentId: string | null,
  run: (bound: Database) => Promise<Result>,
): Promise<Result> {
  const { environments } = database.names;
  return database.transaction(async (transaction) => {
    const bound = within(database, transaction);
    const lock =
      environmentId === null
        ? sql`select pg_advisory_xact_lock(hashtextextended(${`${database.schema} API keys`}, 0))`
        : sql`select e.id from ${environments} e where e.id = ${environmentId} for no key update`;
    const [turn] = await bound.rows(lock);
    if (turn === undefined) throw environmentNotFound(String(environmentId));
    return run(bound);
  });
}

export function checkKeyRef({ environmentId, id }: KeyRef): void {
  if (environmentId !== null) checkText('environmentId', environmentId, LIMITS.idCharacters);
  checkText('id', id, LIMITS.idCharacters);
}

export const keyNotFound = (id: string): QueueError => new QueueError('not_found', `key ${id} was not found`);

export const tooManyKeys = (environmentId: string | null, advice = 'revoke one first'): QueueError => {
  const whose = environmentId === null ? 'there are' : `environment ${environmentId} has`;
  const what = environmentId === null ? 'API keys' : 'keys';
  return new QueueError(
    'conflict',
    `${whose} ${LIMITS.keysPerEnvironment} live ${what} already, which is the limit: ${advice}`,
  );
};
