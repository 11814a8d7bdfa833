import { type CompiledQuery, type QueryExecutorProvider, type RawBuilder, sql } from 'kysely';

/** An instant as the wire carries it: RFC 3339, UTC, microseconds, byte for byte (contract §5). */
export const rfc3339 = (instant: RawBuilder<unknown>): RawBuilder<string> =>
  sql`to_char(${instant} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')`;

/** What `database.rows` runs: the `sql` template's, a builder's or one of `fixed`. */
export type Statement<Row> = { compile(provider: QueryExecutorProvider): CompiledQuery<Row> };

class Later<Args> {
  readonly of: (args: Args) => unknown;
  constructor(of: (args: Args) => unknown) {
    this.of = of;
  }
}

/** Stands for a value that each run of a fixed statement brings. */
export type Value<Args> = (of: (args: Args) => unknown) => RawBuilder<unknown>;

/**
 * A statement whose text is always the same, for each `shape`: it is built and compiled once for a database, and then only given its values. Building one costs the
 * process more than sending it. Whatever `build` takes from anywhere but `value` is fixed by the first call.
 */
export function fixed<Args, Row, Shape extends string = ''>(
  build: (value: Value<Args>, names: TableNames, shape: Shape) => RawBuilder<Row>,
): (names: TableNames, args: Args, shape: Shape) => Statement<Row> {
  const compiled = new WeakMap<TableNames, Map<Shape, CompiledQuery<Row>>>();
  return (names, args, shape) => ({
    compile(provider) {
      const shapes = compiled.get(names) ?? new Map<Shape, CompiledQuery<Row>>();
      compiled.set(names, shapes);
      const query = shapes.get(shape) ?? build((of) => sql`${new Later(of)}`, names, shape).compile(provider);
      shapes.set(shape, query);
      return {
        ...query,
        parameters: query.parameters.map((value) => (value instanceof Later ? value.of(args) : value)),
      };
    },
  });
}

type Column<Row> = readonly [type: 'text' | 'integer' | 'smallint' | 'boolean', value: (row: Row) => unknown];
type Columns<Row> = Readonly<Record<string, Column<Row>>>;

/** Up to so many rows the planner is not told how many. */
const FEW_MAX = 256;
export type Extent = 'few' | 'many';
export const extentOf = (rows: readonly unknown[]): Extent => (rows.length <= FEW_MAX ? 'few' : 'many');

/**
 * The rows that a call brings, for a `from`: called `t`, with the columns named, numbered from 1 by `slot`. How many a few are is
 * kept from the planner. Seeing it, Postgres would plan each call anew, which costs as much as running it; guessing ten, it would
 * read a small table whole, and go on so when it has grown. As it is, it settles on the plan for one: by index. Many are
 * worth a plan of their own.
 */
export const given = <Row>(rows: readonly Row[], columns: Columns<Row>): RawBuilder<unknown> =>
  unnested((of) => sql`${of(rows)}`, columns, extentOf(rows));

/** The same for a fixed statement. */
export const givenLater = <Args, Row>(
  value: Value<Args>,
  rows: (args: Args) => readonly Row[],
  columns: Columns<Row>,
  extent: Extent,
): RawBuilder<unknown> => unnested((of) => value((args) => of(rows(args))), columns, extent);

function unnested<Row>(
  value: (of: (rows: readonly Row[]) => unknown) => RawBuilder<unknown>,
  columns: Columns<Row>,
  extent: Extent,
): RawBuilder<unknown> {
  const isFew = extent === 'few';
  const names = Object.keys(columns).map((name) => sql.id(name));
  const arrays = Object.values(columns).map(([type, cell]) => {
    const array = sql`${value((rows) => rows.map((row) => cell(row) ?? null))}::${sql.raw(type)}[]`;
    return isFew ? sql`(select ${array})` : array;
  });
  return sql`(
        select ${sql.join(names.map((name) => sql`u.${name}`))}, u.slot
        from unnest(${sql.join(arrays)}) with ordinality as u(${sql.join(names)}, slot) ${isFew ? sql`limit ${value((rows) => rows.length)}` : sql``}
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
    workResults: sql.id(schema, 'work_results'),
    requestIds: sql.id(schema, 'request_ids'),
    idempotencyKeys: sql.id(schema, 'idempotency_keys'),
    auditLog: sql.id(schema, 'audit_log'),
    refusals: sql.id(schema, 'refusals'),
    sessions: sql.id(schema, 'sessions'),
    sessionEvents: sql.id(schema, 'session_events'),
    streamTickets: sql.id(schema, 'stream_tickets'),
    locks: sql.id(schema, 'locks'),
  };
}

export type TableNames = ReturnType<typeof tableNames>;
