import { type RawBuilder, sql } from 'kysely';

/** An instant as the wire carries it: RFC 3339, UTC, microseconds, byte for byte (contract §5). */
export const rfc3339 = (instant: RawBuilder<unknown>): RawBuilder<string> =>
  sql`to_char(${instant} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')`;

type Column<Row> = readonly [type: 'text' | 'integer' | 'smallint' | 'boolean', value: (row: Row) => unknown];

/** Up to so many rows the planner is not told how many. */
const FEW_MAX = 256;

/**
 * The rows that a call brings, for a `from`: called `t`, with the columns named, numbered from 1 by `slot`. How many a few are is
 * kept from the planner. Seeing it, Postgres would plan each call anew, which costs as much as running it; guessing ten, it would
 * read a small table whole, and go on so when it has grown. As it is, it settles on the plan for one: by index. Many are
 * worth a plan of their own.
 */
export function given<Row>(rows: readonly Row[], columns: Readonly<Record<string, Column<Row>>>): RawBuilder<unknown> {
  const isFew = rows.length <= FEW_MAX;
  const names = Object.keys(columns).map((name) => sql.id(name));
  const arrays = Object.values(columns).map(([type, value]) => {
    const array = sql`${rows.map((row) => value(row) ?? null)}::${sql.raw(type)}[]`;
    return isFew ? sql`(select ${array})` : array;
  });
  return sql`(
        select ${sql.join(names.map((name) => sql`u.${name}`))}, u.slot
        from unnest(${sql.join(arrays)}) with ordinality as u(${sql.join(names)}, slot) ${isFew ? sql`limit ${rows.length}` : sql``}
      ) t`;
}

/** The tables by their full names, so that no statement depends on a search path (design §4). */
export function tableNames(schema: string) {
  return {
    workItems: sql.id(schema, 'work_items'),
    handOuts: sql.id(schema, 'hand_outs'),
    environments: sql.id(schema, 'environments'),
    credentials: sql.id(schema, 'credentials'),
    workerSightings: sql.id(schema, 'worker_sightings'),
    workInputs: sql.id(schema, 'work_inputs'),
    requestIds: sql.id(schema, 'request_ids'),
    idempotencyKeys: sql.id(schema, 'idempotency_keys'),
    auditLog: sql.id(schema, 'audit_log'),
    refusals: sql.id(schema, 'refusals'),
    sessions: sql.id(schema, 'sessions'),
    sessionEvents: sql.id(schema, 'session_events'),
  };
}

export type TableNames = ReturnType<typeof tableNames>;
