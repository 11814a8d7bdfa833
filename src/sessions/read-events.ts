import { type RawBuilder, sql } from 'kysely';
import type { Database } from '../db/connect.ts';
import { parseCursor, toCursor } from '../queue/cursor.ts';
import { checkInteger, LIMITS } from '../queue/limits.ts';
import { type Between, between } from './read.ts';
import { type SessionStatus, sessionNotFound } from './session.ts';

export type EventsQuery = {
  /** 1 to 1000. */
  readonly limit: number;
  readonly page?: string | undefined;
  /** Default oldest first. */
  readonly order?: 'asc' | 'desc' | undefined;
  readonly types?: readonly string[] | undefined;
  readonly processed?: Between | undefined;
};

/** The JSON of each event. */
export type EventsPage = { readonly events: readonly string[]; readonly nextPage: string | null };

type EventRow = { readonly seq: string; readonly type: string; readonly event: string; readonly isLast: boolean };

const SEQ = /^[1-9]\d{0,17}$/;
/** What a cursor of events has for an instant: their numbers are enough. */
const NO_INSTANT = '2000-01-01T00:00:00.000000Z';

/**
 * A page of at most `limit` events and 8 MiB, but for one that is larger alone: what is in memory is bounded, and a page that is shorter
 * than was asked for has a next one. Refuses: not_found; invalid_request for a cursor that no page gave out.
 */
export async function listEvents(database: Database, sessionId: string, query: EventsQuery): Promise<EventsPage> {
  const { limit, page, order = 'asc', types, processed = {} } = query;
  checkInteger('limit', limit, 1, LIMITS.pageItems);
  const after = page === undefined ? undefined : parseCursor(page, SEQ).key;
  const isAscending = order === 'asc';
  const conditions = [
    ...(after === undefined ? [] : [sql`e.seq ${isAscending ? sql`>` : sql`<`} ${after}::bigint`]),
    ...(types === undefined ? [] : [sql`e.type = any(${types}::text[])`]),
    ...between(sql`e.processed_at`, processed),
  ];
  const rows = await readEvents(database, sessionId, conditions, isAscending, {
    limit,
    bytesMax: LIMITS.eventBytesPerRead,
  });
  const last = rows.at(-1);
  return {
    events: rows.map(({ event }) => event),
    nextPage: last === undefined || last.isLast ? null : toCursor({ createdAt: NO_INSTANT, key: last.seq }),
  };
}

export type Tail = {
  readonly events: readonly { readonly seq: number; readonly type: string; readonly event: string }[];
  /** There is more already. */
  readonly hasMore: boolean;
};

const EVENTS_PER_TAIL_MAX = 500;
/** As much may be in memory for each stream whose client does not read. */
const BYTES_PER_TAIL_MAX = 1_048_576;

/** What came after an event, oldest first: at most 500 events and 1 MiB, but for one that is larger alone. Refuses: not_found. */
export async function tailEvents(database: Database, sessionId: string, afterSeq: number): Promise<Tail> {
  const after = sql`e.seq > ${afterSeq}::bigint`;
  const limits = { limit: EVENTS_PER_TAIL_MAX, bytesMax: BYTES_PER_TAIL_MAX };
  const rows = await readEvents(database, sessionId, [after], true, limits);
  return {
    events: rows.map(({ seq, type, event }) => ({ seq: Number(seq), type, event })),
    hasMore: rows.at(-1)?.isLast === false,
  };
}

async function readEvents(
  database: Database,
  sessionId: string,
  conditions: readonly RawBuilder<unknown>[],
  isAscending: boolean,
  { limit, bytesMax }: { readonly limit: number; readonly bytesMax: number },
): Promise<EventRow[]> {
  const { sessions, sessionEvents } = database.names;
  const order = isAscending ? sql`asc` : sql`desc`;
  // Sizes first: only what is answered is read whole.
  const rows = await database.rows(sql<Omit<EventRow, 'isLast' | 'seq'> & { seq: string | null; isLast: string }>`
    with found as materialized (
      select e.seq, e.bytes from ${sessionEvents} e
      where ${sql.join([sql`e.session_id = ${sessionId}`, ...conditions], sql` and `)}
      order by e.seq ${order} limit ${limit + 1}
    ), sized as materialized (
      select f.seq, sum(f.bytes) over (order by f.seq ${order}) as total, row_number() over (order by f.seq ${order}) as place
      from found f
    ), chosen as materialized (
      select z.seq from sized z
      where z.place <= ${limit} and (z.place = 1 or z.total <= ${sql.lit(bytesMax)})
    )
    select e.seq::text as seq, e.type, e.event, ((select count(*) from chosen) = (select count(*) from found))::text as "isLast"
    from ${sessions} s
      left join (select e.seq, e.session_id, e.type, e.event from ${sessionEvents} e join chosen c on c.seq = e.seq
        where e.session_id = ${sessionId}) e on true
    where s.id = ${sessionId}
    order by e.seq ${order}`);
  if (rows.length === 0) throw sessionNotFound(sessionId);
  return rows.flatMap(({ seq, isLast, ...row }) => (seq === null ? [] : [{ ...row, seq, isLast: isLast === 'true' }]));
}

/** Where a stream begins. */
export type Head = {
  readonly id: string;
  readonly lastSeq: number;
  readonly status: SessionStatus;
  readonly lastEvent: string | null;
};

/** Where sessions are now; those that are gone are not told of. `lastEvent` is its JSON, of terminated ones. */
export async function readHeads(database: Database, ids: readonly string[]): Promise<Head[]> {
  const { sessions, sessionEvents } = database.names;
  const rows = await database.rows(sql<Omit<Head, 'lastSeq'> & { lastSeq: string }>`
    select s.id, s.last_seq::text as "lastSeq", s.status, e.event as "lastEvent"
    from ${sessions} s left join ${sessionEvents} e
      on e.session_id = s.id and e.seq = s.last_seq and s.status = 'terminated'
    where s.id = any(${ids}::text[])`);
  return rows.map(({ lastSeq, ...head }) => ({ ...head, lastSeq: Number(lastSeq) }));
}
