import { type RawBuilder, sql } from 'kysely';
import { type CallerTransaction, type Database, within } from '../db/connect.ts';
import { isDeadlock, isForeignKeyViolation, isLockTimeout, isUniqueViolation } from '../db/failures.ts';
import { checkEnqueue } from './check-enqueue.ts';
import { refusalOf, taken } from './enqueue-refusals.ts';
import { type EnqueueRow, enqueueStatement } from './enqueue-statement.ts';
import { environmentNotFound, QueueError } from './errors.ts';
import {
  type ItemRow,
  type Lane,
  type Offered,
  type TraceContext,
  toWorkItem,
  type WorkItem,
  type WorkKind,
} from './items.ts';
import { LIMITS } from './limits.ts';
import { HELD } from './sets.ts';

export type EnqueueRequest = {
  readonly environmentId: string;
  /** The caller's own text, 1 to 256 characters. */
  readonly sessionId: string;
  /** Default `tool_exec`. */
  readonly kind?: WorkKind;
  readonly metadata?: Readonly<Record<string, string>>;
  /** Any JSON value, at most 256 KiB of UTF-8. The wire object cannot carry it: it is read apart. */
  readonly input?: unknown;
  /** -100 to 100, higher first, default 0. */
  readonly priority?: number;
  /** Not handed out before this instant of the database's clock; RFC 3339 with an offset. */
  readonly notBefore?: string;
  /** Handed out that often without finishing, it is set aside; 1 to 1000000. Default: the environment's. */
  readonly maxHandOuts?: number;
  /** Failed that often, it is set aside; 1 to 1000000, default 25. Only what is claimed fails. */
  readonly maxAttempts?: number;
  /** 1 to 200 characters, the name of this piece of work: asked for again, the same item answers, as long as it is remembered. */
  readonly requestId?: string;
  /** Covered by a live item, this request becomes its successor's: enqueued by the statement that frees the slot. One an item. */
  readonly followUp?: boolean;
  readonly traceContext?: TraceContext;
};

export type Enqueued = {
  /** False when a remembered request or a live item of the same environment, session and kind answers. */
  readonly created: boolean;
  readonly item: WorkItem;
  /** Polls serve only the wire lane; the lane is fixed here (design §1). */
  readonly lane: Lane;
};

/** What is new among it. */
export const offeredOf = (enqueued: readonly Enqueued[]): Offered[] =>
  enqueued.filter(({ created }) => created).map(({ lane, item }) => ({ ...item, lane }));

/** Who loses a race for a slot or a request id looks again; what changes hands faster than this is a caller's loop. */
const ATTEMPTS_MAX = 5;

/** One request: see `enqueueAll`. */
export async function enqueue(
  database: Database,
  request: EnqueueRequest,
  transaction?: CallerTransaction,
  alongside?: RawBuilder<unknown>,
): Promise<Enqueued> {
  checkEnqueue(request);
  const [enqueued] = await run(database, [request], transaction, alongside, () => '');
  if (enqueued === undefined) throw new Error('one request, no answer');
  return enqueued;
}

/**
 * Puts work in, all or nothing, 1 to 1000 requests; answers in the order asked. In this order (contract §4):
 * a known request id answers its item, in whatever state; a live item of the same environment, session and kind covers the
 * request, and the request id is remembered for it; else there is a new item. An earlier request of the call covers a later one.
 * With `transaction` the rows and their notification commit with the caller's own writes, and the statement's own failures
 * (a serialisation failure, say) come out as they are. An archived environment takes no new work; what is covered is not new.
 * `alongside` is an insert of the caller's that becomes part of the statement. It selects from `answer`, a row a request: `created`,
 * and `id`, null unless all is done.
 * Refuses: invalid_request, invalid_metadata, environment_not_found, environment_archived; conflict when a request id is known for
 * another session or kind.
 */
export async function enqueueAll(
  database: Database,
  requests: readonly EnqueueRequest[],
  transaction?: CallerTransaction,
  alongside?: RawBuilder<unknown>,
): Promise<Enqueued[]> {
  if (requests.length < 1 || requests.length > LIMITS.itemsPerCall) {
    throw new QueueError('invalid_request', `a call takes 1 to ${LIMITS.itemsPerCall} items, not ${requests.length}`);
  }
  for (const [index, request] of requests.entries()) checkEnqueue(request, `items.${index}.`);
  return run(database, withRepeats(requests), transaction, alongside, (index) => `items.${index}.`);
}

/**
 * A request id that stood in the call before is known by then: it names that item, and is no follow-up of it. Refuses:
 * conflict when that was for another session or kind.
 */
function withRepeats(requests: readonly EnqueueRequest[]): EnqueueRequest[] {
  const first = new Map<string, EnqueueRequest>();
  return requests.map((request, index) => {
    const { environmentId, requestId, sessionId, kind = 'tool_exec' } = request;
    if (requestId === undefined) return request;
    const key = JSON.stringify([environmentId, requestId]);
    const earlier = first.get(key);
    if (earlier === undefined) {
      first.set(key, request);
      return request;
    }
    if (earlier.sessionId !== sessionId || (earlier.kind ?? 'tool_exec') !== kind) {
      throw taken(request, index, `items.${index}.`);
    }
    return { ...request, followUp: false };
  });
}

/** A row or a slot that somebody else holds keeps those that share a statement with it from theirs for no longer. */
const SHARED_LOCK_TIMEOUT_MS = 50;

/**
 * Requests that have nothing to do with one another, in one statement: each as if enqueued alone (no request id twice). HELD: it has not been decided, and is to
 * be asked for alone. Throws when the database gave up: nothing was written then.
 */
export async function enqueueEach(
  database: Database,
  requests: readonly EnqueueRequest[],
  alongside?: RawBuilder<unknown>,
): Promise<(Enqueued | QueueError | typeof HELD)[]> {
  let rows: EnqueueRow[];
  try {
    rows = await database.rows(
      enqueueStatement(database, requests, {
        ...{ isWhole: false, isTold: false, alongside },
        lockTimeoutMs: SHARED_LOCK_TIMEOUT_MS,
      }),
    );
  } catch (error) {
    // One of them lost a race, or waits for somebody: who it was is found out one by one.
    if (isLockTimeout(error) || isUniqueViolation(error) || isForeignKeyViolation(error))
      return requests.map(() => HELD);
    throw error;
  }
  return requests.map((request, index) => {
    const row = rows[index];
    if (row === undefined) return HELD;
    return refusalOf([row], [request], () => '') ?? (isItem(row) ? toEnqueued(row) : HELD);
  });
}

/** `where` names a request in its call, in refusals. */
async function run(
  given: Database,
  requests: readonly EnqueueRequest[],
  transaction: CallerTransaction | undefined,
  alongside: RawBuilder<unknown> | undefined,
  where: (index: number) => string,
): Promise<Enqueued[]> {
  const database = transaction === undefined ? given : within(given, transaction);
  // Alone and without a request id the loser of a race writes nothing and looks again. What must be all or nothing fails
  // as a whole instead: in a transaction of the caller's, back to where it was before.
  const isWhole = requests.length > 1 || requests.some(({ requestId }) => requestId !== undefined);
  const savepoint = isWhole && database.isTransaction;
  // In a transaction of our own, whoever opened it tells once it is committed (design §5).
  const statement = enqueueStatement(database, requests, {
    isWhole,
    isTold: transaction !== undefined,
    alongside,
  });
  let cause: unknown;

  for (let attempt = 0; attempt < ATTEMPTS_MAX; attempt++) {
    if (savepoint) await database.rows(sql`savepoint leasehold_enqueue`);
    let rows: EnqueueRow[];
    try {
      rows = await database.rows(statement);
    } catch (error) {
      // It was deleted while this waited for its row.
      const isGone = isForeignKeyViolation(error);
      if (isGone && !isWhole) throw environmentNotFound(requests[0]?.environmentId ?? '');
      if (!isWhole || !(isGone || isUniqueViolation(error) || isDeadlock(error))) throw error;
      if (savepoint) {
        await database.rows(sql`rollback to savepoint leasehold_enqueue`);
        await database.rows(sql`release savepoint leasehold_enqueue`);
      }
      cause = error;
      continue;
    }
    if (savepoint) await database.rows(sql`release savepoint leasehold_enqueue`);
    const refusal = refusalOf(rows, requests, where);
    if (refusal !== undefined) throw refusal;
    const answers = rows.filter(isItem).map(toEnqueued);
    if (answers.length === requests.length) return answers;
  }
  throw new QueueError('unavailable', `a session's slot changed hands ${ATTEMPTS_MAX} times, try again`, { cause });
}

const isItem = (row: EnqueueRow): row is EnqueueRow & ItemRow => typeof row.id === 'string';
const toEnqueued = (row: EnqueueRow & ItemRow): Enqueued => ({
  created: row.created === 'true',
  lane: row.lane,
  item: toWorkItem(row),
});
