import { sql } from 'kysely';
import type { Database } from '../db/connect.ts';
import { type AuditEntry, auditInsert } from './audit.ts';

/** A write that its caller may send again, under a key of the caller's own. */
export type RetriedWrite = {
  /** The credential's id. */
  readonly caller: string;
  /** 1 to 255 printable ASCII characters. */
  readonly key: string;
  /** Of method, path and body: the same key with another request is a mistake. */
  readonly requestHash: string;
};

/** How long an answer is given again; after that the key is as new. */
export const ANSWERS_KEPT_DAYS = 1;

/** Only one at a time acts on a key. Whoever comes meanwhile does not wait: a hundred repeats would take the whole pool. */
const tryTurn = ({ schema }: Database, { caller, key }: RetriedWrite) =>
  sql`pg_try_advisory_xact_lock(hashtextextended(${JSON.stringify([schema, 'retried write', caller, key])}, 0))`;

export type Turn = {
  /** False while another transaction acts on the key. Held until this transaction ends. */
  readonly mine: boolean;
  /** What an earlier one answered; also when the turn is not ours, which may be another repeat's. */
  readonly earlier: { readonly requestHash: string; readonly answer: string } | undefined;
};

/**
 * Tries to have a key to oneself and reads what was answered under it, in a transaction. The reading may be older than the turn:
 * an answer that was committed in between is found by `recordAnswer`.
 */
export async function takeTurn(database: Database, write: RetriedWrite): Promise<Turn> {
  const [row] = await database.rows(sql<{ mine: boolean; requestHash: string | null; answer: string | null }>`
    select ${tryTurn(database, write)} as mine, k.request_hash as "requestHash", k.answer
    from (select 1) one left join ${database.names.idempotencyKeys} k on k.caller = ${write.caller} and k.key = ${write.key}
      and k.created_at > clock_timestamp() - ${sql.lit(ANSWERS_KEPT_DAYS)} * interval '1 day'`);
  const { mine = false, requestHash = null, answer = null } = row ?? {};
  return { mine, earlier: requestHash === null || answer === null ? undefined : { requestHash, answer } };
}

/**
 * Remembers an answer with its entry in the audit log, once for a key: true when it was this one. False, and nothing written, when
 * another answer was given meanwhile or is being made.
 */
export async function recordAnswer(
  database: Database,
  write: RetriedWrite,
  answer: string,
  entry: AuditEntry,
): Promise<boolean> {
  const [row] = await database.rows(sql<{ recorded: boolean }>`
    with turn as materialized (
      select ${tryTurn(database, write)} as mine
    ), remembered as (
      insert into ${database.names.idempotencyKeys} as k (caller, key, request_hash, answer, created_at)
      select ${write.caller}, ${write.key}, ${write.requestHash}, ${answer}, clock_timestamp() from turn where turn.mine
      on conflict (caller, key) do update
      set request_hash = excluded.request_hash, answer = excluded.answer, created_at = excluded.created_at
      where k.created_at <= clock_timestamp() - ${sql.lit(ANSWERS_KEPT_DAYS)} * interval '1 day'
      returning k.key
    ), logged as (
      ${auditInsert(database.names, entry, sql`from remembered`)}
    )
    select exists (select from remembered) as recorded`);
  return row?.recorded ?? false;
}
