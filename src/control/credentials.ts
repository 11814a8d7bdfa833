import { timingSafeEqual } from 'node:crypto';
import { sql } from 'kysely';
import { LRUCache } from 'lru-cache';
import type { Database } from '../db/connect.ts';
import { rfc3339 } from '../db/sql.ts';
import { createNotes } from '../dispatch/notes.ts';
import { hashSecret } from '../queue/ids.ts';
import { parseSessionsToken } from '../queue/sessions-token.ts';
import { environmentOfSession } from '../sessions/read.ts';
import { KEY, type KeyRole } from './key-rows.ts';
import { CHANGES_MAX, CHANGES_REACH_SECONDS, createKnownKeys, type FoundKey, type KeyChange } from './known-keys.ts';
import { redeemTicket } from './stream-tickets.ts';

/** A key for the whole deployment. `read_only` ones change nothing and take no work. */
export type ApiCaller = {
  readonly kind: 'api';
  readonly keyId: string;
  readonly keyName: string;
  /** What it is stored as. */
  readonly keyHash: string;
  readonly role: KeyRole;
};

export type EnvironmentCaller = {
  readonly kind: 'environment';
  readonly keyId: string;
  readonly keyName: string;
  readonly keyHash: string;
  readonly environmentId: string;
  /** Its workers are offered only what has waited for this long. */
  readonly minQueuedAgeMs: number;
};

/** Who holds, or held, an item: its sessions token. */
export type SessionCaller = {
  readonly kind: 'session';
  readonly environmentId: string;
  readonly workId: string;
  readonly sessionId: string;
  /** Of the token: proof of its hand-out. */
  readonly tokenHash: string;
};

/** Who calls, as far as a credential tells (contract §2). */
export type Caller = ApiCaller | EnvironmentCaller | SessionCaller;

const TOKENS_MAX = 20_000;
const SESSIONS_MAX = 20_000;
const USES_FLUSH_INTERVAL_MS = 5_000;
const USES_MAX = 20_000;

/** Also of a key that somebody revoked by hand. As the index has it. */
const CHANGED_AT = sql`greatest(c.changed_at, c.revoked_at)`;

/** The process's own LEASEHOLD_API_KEY: it has no row. */
const OPERATOR = { kind: 'api', keyId: 'operator', keyName: 'LEASEHOLD_API_KEY', role: 'operator' } as const;

export type CallersOptions = {
  readonly database: Database;
  /** An API key without a row, valid while this process runs with it. */
  readonly operatorKey?: string | undefined;
};

/**
 * Tells callers by their credentials. Only hits are remembered: a key that was issued a moment ago on another replica works at
 * once (contract §2). Undefined for whatever is unknown, expired or revoked, without a difference. Close it before its
 * database.
 */
export function createCallers({ database, operatorKey }: CallersOptions) {
  const { credentials, workItems, handOuts } = database.names;
  const operator: ApiCaller | undefined =
    operatorKey === undefined ? undefined : { ...OPERATOR, keyHash: hashSecret(operatorKey) };
  // A token is good as long as its item is remembered, and the verb finds out by itself when it no longer is.
  const tokens = new LRUCache<string, Caller>({ max: TOKENS_MAX });
  const homes = new LRUCache<string, string>({ max: SESSIONS_MAX });
  const uses = createNotes<{ keyId: string }>({
    record: (used) => recordUses(database, used),
    flushIntervalMs: USES_FLUSH_INTERVAL_MS,
    notesMax: USES_MAX,
  });

  const keys = createKnownKeys<ApiCaller | EnvironmentCaller>({
    // statement_timestamp: what is volatile would keep the index out.
    readChanges: () =>
      database.rows(sql<KeyChange>`
        select c.key_hash as hash, ${rfc3339(CHANGED_AT)} as "changedAt" from ${credentials} c
        where ${CHANGED_AT} > statement_timestamp() - ${sql.lit(CHANGES_REACH_SECONDS)} * interval '1 second'
        order by ${CHANGED_AT} desc limit ${sql.lit(CHANGES_MAX)}`),
  });

  const asOperator = (hash: string) =>
    operator !== undefined && isEqual(operator.keyHash, hash) ? operator : undefined;

  async function byKey(hash: string): Promise<ApiCaller | EnvironmentCaller | undefined> {
    const known = await keys.get(hash);
    if (known !== undefined) return known;
    const readAt = performance.now();
    const found = await findKey(database, hash);
    if (found !== undefined) keys.put(hash, found, readAt);
    return found?.key;
  }

  async function byToken(remembered: string, workId: string, hash: string): Promise<Caller | undefined> {
    const known = tokens.get(remembered);
    if (known !== undefined) return known;
    const [row] = await database.rows(sql<{ environmentId: string; sessionId: string; tokenHash: string | null }>`
      select w.environment_id as "environmentId", w.session_id as "sessionId", w.sessions_token_hash as "tokenHash"
      from ${workItems} w where w.id = ${workId}
      union all
      select w.environment_id, w.session_id, h.sessions_token_hash
      from ${handOuts} h join ${workItems} w on w.seq = h.item_seq where h.work_id = ${workId}`);
    if (row === undefined || !isEqual(row.tokenHash ?? '', hash)) return undefined;
    const { environmentId, sessionId } = row;
    const caller: Caller = { kind: 'session', environmentId, workId, sessionId, tokenHash: hash };
    tokens.set(remembered, caller);
    return caller;
  }

  return {
    async identify(credential: string): Promise<Caller | undefined> {
      const hash = hashSecret(credential);
      const own = asOperator(hash);
      if (own !== undefined) return own;
      const token = parseSessionsToken(credential);
      if (token !== undefined) return byToken(hash, token.workId, token.hash);
      if (!KEY.test(credential)) return undefined;
      const caller = await byKey(hash);
      if (caller !== undefined) uses.note(caller.keyId, { keyId: caller.keyId });
      return caller;
    },

    /** The key that a ticket for the events of this environment was issued with, as its hash: see `identifyByHash`. */
    redeemTicket: (ticket: string, environmentId: string) => redeemTicket(database, ticket, environmentId),

    /** Whose key is stored as this, while it is good. */
    identifyByHash: async (hash: string) => asOperator(hash) ?? byKey(hash),

    /** Whether the hand-out of this token goes on, under a live lease (its reservation included). Asks the database each time. */
    async isHolding(caller: SessionCaller): Promise<boolean> {
      const found = await database.rows(sql`
        select from ${workItems} w where w.id = ${caller.workId} and w.sessions_token_hash = ${caller.tokenHash}
          and w.state <> 'stopped' and w.lease_expires_at > clock_timestamp()`);
      return found.length > 0;
    },

    /** Of a session of the relay, also of one that was deleted since it was asked for; undefined where there is none. */
    async environmentOfSession(sessionId: string): Promise<string | undefined> {
      const home = homes.get(sessionId) ?? (await environmentOfSession(database, sessionId));
      if (home !== undefined) homes.set(sessionId, home);
      return home;
    },

    /** Writes what is noted of keys' uses so far: lists ask for it, so that a process always counts its own. */
    flush: () => uses.flush(),

    async close(): Promise<void> {
      await keys.close();
      await uses.flush();
    },
  };
}

export type Callers = ReturnType<typeof createCallers>;

async function findKey(database: Database, hash: string): Promise<FoundKey<ApiCaller | EnvironmentCaller> | undefined> {
  const { credentials } = database.names;
  const [row] = await database.rows(sql<KeyRow>`
    select c.id as "keyId", c.name as "keyName", c.environment_id as "environmentId", c.role, c.key_hash as "keyHash",
      coalesce(c.min_queued_age_ms, 0) as "minQueuedAgeMs", ${rfc3339(CHANGED_AT)} as "changedAt",
      extract(epoch from c.expires_at - clock_timestamp())::float8 * 1000 as "remainingMs"
    from ${credentials} c
    where c.key_hash = ${hash} and c.revoked_at is null and c.expires_at > clock_timestamp()`);
  if (row === undefined || !isEqual(row.keyHash, hash)) return undefined;
  const { keyId, keyName, keyHash, environmentId, role, minQueuedAgeMs, changedAt, remainingMs } = row;
  const key: ApiCaller | EnvironmentCaller =
    environmentId === null
      ? { kind: 'api', keyId, keyName, keyHash, role }
      : { kind: 'environment', keyId, keyName, keyHash, environmentId, minQueuedAgeMs };
  return { key, changedAt, remainingMs };
}

type KeyRow = {
  readonly keyId: string;
  readonly keyName: string;
  readonly environmentId: string | null;
  readonly role: KeyRole;
  readonly keyHash: string;
  readonly minQueuedAgeMs: number;
  readonly changedAt: string | null;
  readonly remainingMs: number;
};

/** When keys were last used. Best effort: a key that somebody holds (another replica that records its use) is passed over. */
export async function recordUses(
  database: Database,
  used: readonly { readonly keyId: string; readonly ageMs: number }[],
): Promise<void> {
  const { credentials } = database.names;
  await database.rows(sql`
    with used as materialized (
      select c.id, clock_timestamp() - t.age_ms * interval '1 millisecond' as at
      from unnest(${used.map(({ keyId }) => keyId)}::text[], ${used.map(({ ageMs }) => Math.round(ageMs))}::integer[])
        as t(id, age_ms) join ${credentials} c on c.id = t.id
      for no key update of c skip locked
    )
    update ${credentials} c set last_used_at = greatest(c.last_used_at, u.at) from used u where c.id = u.id`);
}

/** In constant time for texts of one length, which hashes are. */
export function isEqual(one: string, other: string): boolean {
  const [a, b] = [Buffer.from(one), Buffer.from(other)];
  return a.length === b.length && timingSafeEqual(a, b);
}
