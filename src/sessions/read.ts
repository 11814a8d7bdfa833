import { type RawBuilder, sql } from 'kysely';
import type { Database } from '../db/connect.ts';
import { parseCursor, toCursor } from '../queue/cursor.ts';
import { checkInteger, isStorable, LIMITS } from '../queue/limits.ts';
import {
  type Session,
  type SessionRow,
  type SessionStatus,
  sessionAnswer,
  sessionNotFound,
  toSession,
} from './session.ts';

/** Refuses: not_found. */
export async function retrieveSession(database: Database, id: string): Promise<Session> {
  const { sessions } = database.names;
  const [row] = await database.rows(
    sql<SessionRow>`select ${sessionAnswer('s')} from ${sessions} s where s.id = ${id}`,
  );
  if (row === undefined) throw sessionNotFound(id);
  return toSession(row);
}

/** Instants as RFC 3339 text, each a bound of its own. */
export type Between = { readonly gt?: string; readonly gte?: string; readonly lt?: string; readonly lte?: string };

export type SessionsQuery = {
  /** 1 to 1000. */
  readonly limit: number;
  readonly page?: string | undefined;
  /** By `created_at`; default newest first. */
  readonly order?: 'asc' | 'desc' | undefined;
  readonly created?: Between | undefined;
  readonly statuses?: readonly SessionStatus[] | undefined;
  readonly includeArchived?: boolean | undefined;
  readonly agentId?: string | undefined;
  /** Those of one environment. */
  readonly environmentId?: string | undefined;
};

export type SessionsPage = {
  readonly items: readonly Session[];
  readonly nextPage: string | null;
  readonly prevPage: string | null;
};

const KEY = /^(next|prev):sesn_[A-Za-z0-9_-]{1,64}$/;

/** A page; both cursors go on with the same order. Refuses: invalid_request for a cursor that no page gave out. */
export async function listSessions(database: Database, query: SessionsQuery): Promise<SessionsPage> {
  const {
    limit,
    page,
    order = 'desc',
    created = {},
    statuses,
    includeArchived = false,
    agentId,
    environmentId,
  } = query;
  checkInteger('limit', limit, 1, LIMITS.pageItems);
  const from = page === undefined ? undefined : parsePage(page);
  // Backwards is the other order, turned round.
  const isAscending = (order === 'asc') !== (from?.isBackwards ?? false);
  const direction = isAscending ? sql`asc` : sql`desc`;
  const conditions = [
    ...between(sql`s.created_at`, created),
    ...(includeArchived ? [] : [sql`s.archived_at is null`]),
    ...(statuses === undefined ? [] : [sql`s.status = any(${statuses}::text[])`]),
    ...(agentId === undefined ? [] : [sql`s.agent::jsonb ->> 'id' = ${agentId}`]),
    ...(environmentId === undefined ? [] : [sql`s.environment_id = ${environmentId}`]),
    ...(from === undefined
      ? []
      : [
          sql`(s.created_at, s.id) ${isAscending ? sql`>` : sql`<`} (${from.createdAt}::timestamptz, ${from.id}::text)`,
        ]),
  ];
  const rows = await database.rows(sql<SessionRow>`
    select ${sessionAnswer('s')} from ${database.names.sessions} s
    where ${conditions.length === 0 ? sql`true` : sql.join(conditions, sql` and `)}
    order by s.created_at ${direction}, s.id ${direction} limit ${limit + 1}`);
  const items = rows.slice(0, limit).map(toSession);
  const hasMore = rows.length > limit;
  if (from?.isBackwards) items.reverse();
  const [first, last] = [items[0], items.at(-1)];
  const isAfter = from?.isBackwards ? true : hasMore;
  const isBefore = from?.isBackwards ? hasMore : from !== undefined;
  return {
    items,
    nextPage: isAfter && last !== undefined ? toCursor({ createdAt: last.createdAt, key: `next:${last.id}` }) : null,
    prevPage:
      isBefore && first !== undefined ? toCursor({ createdAt: first.createdAt, key: `prev:${first.id}` }) : null,
  };
}

function parsePage(page: string): { createdAt: string; id: string; isBackwards: boolean } {
  const { createdAt, key } = parseCursor(page, KEY);
  return { createdAt, id: key.slice('next:'.length), isBackwards: key.startsWith('prev:') };
}

const OPERATORS = { gt: sql`>`, gte: sql`>=`, lt: sql`<`, lte: sql`<=` } as const;

export const between = (column: RawBuilder<unknown>, bounds: Between): RawBuilder<unknown>[] =>
  Object.entries(OPERATORS).flatMap(([name, operator]) => {
    const bound = bounds[name as keyof Between];
    return bound === undefined ? [] : [sql`${column} ${operator} ${bound}::timestamptz`];
  });

/** The environment that a session is of; undefined where there is no such session, whatever text it is. It never changes. */
export async function environmentOfSession(database: Database, id: string): Promise<string | undefined> {
  if (!isStorable(id)) return undefined;
  const { sessions } = database.names;
  const [row] = await database.rows(
    sql<{ environmentId: string }>`select s.environment_id as "environmentId" from ${sessions} s where s.id = ${id}`,
  );
  return row?.environmentId;
}
