import { type RawBuilder, sql } from 'kysely';
import type { Database } from '../db/connect.ts';
import { parseCursor, SEQ, toPage } from './cursor.ts';
import {
  type DetailsRow,
  detailsAnswer,
  detailsSource,
  OUTCOMES,
  type Outcome,
  STOP_REASONS,
  type StopReason,
  toWorkDetails,
  type WorkDetails,
} from './details.ts';
import { environmentNotFound, QueueError } from './errors.ts';
import { WORK_KINDS, WORK_STATES, type WorkKind, type WorkState } from './items.ts';
import { checkInteger, checkText, LIMITS } from './limits.ts';

/** An item passes when it has one of the values of each filter that is given; at most 16 values in all. */
export type WorkFilter = {
  readonly states?: readonly WorkState[] | undefined;
  readonly sessionIds?: readonly string[] | undefined;
  readonly kinds?: readonly WorkKind[] | undefined;
  readonly stopReasons?: readonly StopReason[] | undefined;
  readonly outcomes?: readonly Outcome[] | undefined;
  readonly workerIds?: readonly string[] | undefined;
};

export type WorkDetailsPage = { readonly items: readonly WorkDetails[]; readonly nextPage: string | null };

const SET_ASIDE: readonly StopReason[] = ['exhausted', 'failed'];

/**
 * A page of an environment's items of both lanes, newest first by (createdAt, seq). `limit` 1 to 1000.
 *
 * A session, what was set aside, and each state are found by indexes of their own: a page takes about a millisecond,
 * however much is finished. Other filters read on, newest first, until the page is full: one that few items pass reads all
 * of the environment's (50 ms for 200,000), and so does `stopping`, for which the process lane has no index (25 ms).
 * Refuses: environment_not_found; invalid_request for a cursor that no page gave out, or a filter that cannot be.
 */
export async function listDetails(
  database: Database,
  environmentId: string,
  { limit, page, ...filter }: WorkFilter & { limit: number; page?: string | undefined },
): Promise<WorkDetailsPage> {
  checkText('environmentId', environmentId, LIMITS.idCharacters);
  checkInteger('limit', limit, 1, LIMITS.pageItems);
  check(filter);
  const { workItems, environments } = database.names;
  const after = page === undefined ? undefined : parseCursor(page, SEQ);
  const passes = sql`w.environment_id = ${environmentId}
    ${after === undefined ? sql`` : sql`and (w.created_at, w.seq) < (${after.createdAt}::timestamptz, ${after.key}::bigint)`}
    ${isOneOf('kind', filter.kinds)} ${isOneOf('stop_reason', filter.stopReasons)} ${isOneOf('outcome', filter.outcomes)}
    ${isOneOf('worker_id', filter.workerIds)}`;
  const parts = partsOf(filter).map(
    (where) => sql`(
        select ${detailsSource('w')} from ${workItems} w where ${passes} and ${where}
        order by w.created_at desc, w.seq desc limit ${limit + 1}::integer
      )`,
  );
  const rows = await database.rows(sql<{ found: boolean; id: string | null } & Omit<DetailsRow, 'id'>>`
    select exists (select from ${environments} e where e.id = ${environmentId}) as found, ${detailsAnswer(database.names, 'w')}
    from (select 1) one left join lateral (
      select ${detailsSource('p')} from (
        ${sql.join(parts, sql` union all `)}
      ) p
      order by p.created_at desc, p.seq desc limit ${limit + 1}::integer
    ) w on true
    order by w.created_at desc, w.seq desc`);
  if (!rows[0]?.found) throw environmentNotFound(environmentId);
  const items = rows.flatMap((row) => (row.id === null ? [] : [toWorkDetails({ ...row, id: row.id })]));
  return toPage(items, limit, ({ createdAt, seq }) => ({ createdAt, key: seq }));
}

/** Always there, so that the statements stay a few, and are prepared. */
const isOneOf = (column: string, values: readonly string[] | undefined): RawBuilder<unknown> => {
  const list = sql`${values === undefined ? null : [...values]}::text[]`;
  return sql`and (${list} is null or ${sql.ref(`w.${column}`)} = any(${list}))`;
};

/** Disjoint, each the predicate of one index in the order of the page. States are literals (design §3). */
function partsOf({ states, sessionIds, stopReasons }: WorkFilter): RawBuilder<unknown>[] {
  if (sessionIds !== undefined) {
    return [...new Set(sessionIds)].map((id) => sql`w.session_id = ${id} ${isOneOf('state', states)}`);
  }
  if (stopReasons?.every((reason) => SET_ASIDE.includes(reason)) && (states?.includes('stopped') ?? true)) {
    return [sql`w.state = 'stopped' and w.stop_reason in ('exhausted', 'failed')`];
  }
  const asked = states === undefined ? [sql`true`] : WORK_STATES.filter((state) => states.includes(state)).map(isState);
  return (['wire', 'process'] as const).flatMap((lane) =>
    asked.map((state) => sql`w.lane = ${sql.lit(lane)} and ${state}`),
  );
}

const isState = (state: WorkState) => sql`w.state = ${sql.lit(state)}`;

function check({ states, sessionIds, kinds, stopReasons, outcomes, workerIds }: WorkFilter): void {
  const filters = { states, sessionIds, kinds, stopReasons, outcomes, workerIds };
  for (const [name, values] of Object.entries(filters)) {
    if (values?.length === 0) throw new QueueError('invalid_request', `${name} must have at least one value`);
  }
  const count = Object.values(filters).flatMap((values) => values ?? []).length;
  if (count > LIMITS.filters) {
    throw new QueueError(
      'invalid_request',
      `there must be at most ${LIMITS.filters} filter values in all, got ${count}`,
    );
  }
  checkKnown('states', states, WORK_STATES);
  checkKnown('kinds', kinds, WORK_KINDS);
  checkKnown('stopReasons', stopReasons, STOP_REASONS);
  checkKnown('outcomes', outcomes, OUTCOMES);
  for (const id of sessionIds ?? []) checkText('sessionIds', id, LIMITS.sessionIdCharacters);
  for (const id of workerIds ?? []) checkText('workerIds', id, LIMITS.workerIdCharacters);
}

function checkKnown(name: string, values: readonly string[] = [], known: readonly string[]): void {
  if (values.every((value) => known.includes(value))) return;
  throw new QueueError('invalid_request', `${name} must be of ${known.join(', ')}`);
}
