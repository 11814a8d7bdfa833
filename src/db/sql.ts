import { type RawBuilder, sql } from 'kysely';

/** An instant as the wire carries it: RFC 3339, UTC, microseconds, byte for byte (contract §5). */
export const rfc3339 = (instant: RawBuilder<unknown>): RawBuilder<string> =>
  sql`to_char(${instant} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')`;

/**
 * An array whose length the planner does not see. Seeing it, Postgres would plan each call anew for its length, and for these
 * statements planning costs as much as running.
 */
export const array = (values: readonly unknown[], type: 'text' | 'integer' | 'boolean'): RawBuilder<unknown> =>
  sql`(select ${values}::${sql.raw(type)}[])`;

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
  };
}

export type TableNames = ReturnType<typeof tableNames>;
