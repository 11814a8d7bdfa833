import { type RawBuilder, sql } from 'kysely';
import type { Database } from '../db/connect.ts';
import { rfc3339, type TableNames } from '../db/sql.ts';
import { parseCursor, toPage } from '../queue/cursor.ts';
import { checkInteger, checkText, LIMITS } from '../queue/limits.ts';

/** What an API key asked for and what came of it; neither secrets nor bodies. */
export type AuditEntry = {
  readonly keyId: string;
  /** As it was called then. */
  readonly keyName: string;
  /** The route's operationId. */
  readonly action: string;
  readonly environmentId: string | null;
  /** What was changed or made, where that is not the environment. */
  readonly target: string | null;
  /** The HTTP status of the outcome, also of a refusal. */
  readonly status: number;
  readonly requestId: string;
};

/** Before it is known what comes of it. */
export type AskedEntry = Omit<AuditEntry, 'status'>;

export type AuditRecord = AuditEntry & { readonly seq: string; readonly at: string };

/** What is decided in the statement stands as SQL. */
type Decided = { readonly [field in keyof AuditEntry]: AuditEntry[field] | RawBuilder<unknown> };

/** The insert, once for each row of `from`; without it, once. */
export const auditInsert = (names: TableNames, entry: Decided, from: RawBuilder<unknown> = sql``) => sql`
  insert into ${names.auditLog} (key_id, key_name, action, environment_id, target, status, request_id)
  select ${entry.keyId}, ${entry.keyName}, ${entry.action}, ${entry.environmentId}, ${entry.target},
    ${entry.status}::integer, ${entry.requestId} ${from}`;

export async function recordAudit(database: Database, entry: AuditEntry): Promise<void> {
  await database.rows(auditInsert(database.names, entry));
}

export type AuditQuery = {
  /** 1 to 1000. */
  readonly limit: number;
  readonly page?: string | undefined;
  readonly environmentId?: string | undefined;
  readonly keyId?: string | undefined;
  readonly action?: string | undefined;
};

export type AuditPage = { readonly items: readonly AuditRecord[]; readonly nextPage: string | null };

/** A page, newest first. Refuses: invalid_request, also for a cursor that no page gave out. */
export async function listAudit(database: Database, { limit, page, ...filters }: AuditQuery): Promise<AuditPage> {
  checkInteger('limit', limit, 1, LIMITS.pageItems);
  const after = page === undefined ? undefined : parseCursor(page, SEQ);
  const conditions = [after === undefined ? sql`true` : sql`a.seq < ${after.key}::bigint`];
  for (const [name, column] of FILTERS) {
    const wanted = filters[name];
    if (wanted === undefined) continue;
    checkText(name, wanted, LIMITS.nameCharacters);
    conditions.push(sql`${sql.ref(`a.${column}`)} = ${wanted}`);
  }
  const rows = await database.rows(sql<AuditRecord>`
    select a.seq::text as seq, ${rfc3339(sql`a.at`)} as at, a.key_id as "keyId", a.key_name as "keyName", a.action,
      a.environment_id as "environmentId", a.target, a.status, a.request_id as "requestId"
    from ${database.names.auditLog} a where ${sql.join(conditions, sql` and `)}
    order by a.seq desc limit ${limit + 1}`);
  return toPage(rows, limit, ({ at, seq }) => ({ createdAt: at, key: seq }));
}

const SEQ = /^[1-9]\d{0,17}$/;
const FILTERS = [
  ['environmentId', 'environment_id'],
  ['keyId', 'key_id'],
  ['action', 'action'],
] as const;
