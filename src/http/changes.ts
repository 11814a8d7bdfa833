import type { FastifyRequest } from 'fastify';
import { type AskedEntry, recordAudit } from '../control/audit.ts';
import { type RetriedWrite, recordAnswer, takeTurn } from '../control/retried-writes.ts';
import { type Database, within } from '../db/connect.ts';
import { QueueError, type QueueErrorCode } from '../queue/errors.ts';
import { hashCanonically } from './canonical.ts';
import { statusOf } from './errors.ts';

export type ChangeAnswer<Body> = {
  readonly status: number;
  readonly body: Body;
  /** What was changed, where the path does not name it: the id of what was made. */
  readonly target?: string;
  /** What a repeat is told in place of an answer that holds a secret. */
  readonly repeat?: QueueError;
};

declare module 'fastify' {
  interface FastifySchema {
    operationId?: string;
  }
}

/** What the transactions come to: an answer, or a refusal, which is as good an answer to a repeat. */
type Outcome<Body> = ChangeAnswer<Body> | QueueError;
type Act<Body> = (database: Database) => Promise<ChangeAnswer<Body>>;
type Stored<Body> =
  | { readonly status: number; readonly body: Body }
  | { readonly refusal: { code: QueueErrorCode; message: string; details?: Record<string, unknown> } };

/** Another answer was given under the key while this one was being made: each time, the next look finds it. */
const ATTEMPTS_MAX = 3;

/**
 * Runs a change that an API key asked for, its statements in one transaction: with its entry in the audit log and, given an
 * Idempotency-Key, with the answer that a repeat gets for a day. A refusal of the act leaves nothing of it and is recorded likewise;
 * bad input, and anything else that it throws, leaves nothing at all, so that a repeat acts. Whoever is no API key acts without all that.
 * Refuses, besides: invalid_request for a bad key, conflict for a key that was used for another request,
 * idempotency_in_progress while the first request runs; none of these is recorded.
 */
export async function change<Body>(
  database: Database,
  request: FastifyRequest,
  act: Act<Body>,
): Promise<ChangeAnswer<Body>> {
  const { caller } = request;
  if (caller?.kind !== 'api') return act(database);
  const write = retriedWriteOf(request, caller.keyId);
  const entry = entryOf(request, caller);
  for (let attempt = 0; attempt < ATTEMPTS_MAX; attempt++) {
    const outcome = await tryOnce(database, write, entry, act);
    if (outcome instanceof QueueError) throw outcome;
    if (outcome !== undefined) return outcome;
  }
  throw inProgress();
}

/**
 * The same for an act of one statement: without an Idempotency-Key the entry is part of it, and the change one round trip in place of
 * four. Given `entry`, the act has to record it.
 */
export async function changeAtOnce<Body>(
  database: Database,
  request: FastifyRequest,
  act: (database: Database, entry?: AskedEntry) => Promise<ChangeAnswer<Body>>,
): Promise<ChangeAnswer<Body>> {
  const { caller } = request;
  if (caller?.kind !== 'api' || retriedWriteOf(request, caller.keyId) !== undefined) {
    return change(database, request, (bound) => act(bound));
  }
  const entry = entryOf(request, caller);
  try {
    return await act(database, entry);
  } catch (error) {
    if (!isRecorded(error)) throw error;
    await record(database, undefined, entry, error);
    throw error;
  }
}

/** Undefined: another answer came first, and this one was undone. */
async function tryOnce<Body>(
  database: Database,
  write: RetriedWrite | undefined,
  entry: AskedEntry,
  act: Act<Body>,
): Promise<Outcome<Body> | undefined> {
  try {
    return await database.transaction(async (transaction) => {
      const bound = within(database, transaction);
      const earlier = write === undefined ? undefined : await earlierOutcome<Body>(bound, write);
      if (earlier !== undefined) return earlier;
      const answer = await act(bound);
      if (!(await record(bound, write, entry, answer))) throw new Overtaken();
      return answer;
    });
  } catch (error) {
    if (error instanceof Overtaken) return undefined;
    if (!isRecorded(error)) throw error;
    // Rolled back: what refused may have been a statement that failed. In between the key is free, and recording asks for it again.
    return (await record(database, write, entry, error)) ? error : undefined;
  }
}

class Overtaken extends Error {}

/** What was never understood is no outcome, whether a schema found it or the act: its key is free for the request that was meant. */
const UNRECORDED: ReadonlySet<QueueErrorCode> = new Set(['unavailable', 'invalid_request', 'invalid_metadata']);

const isRecorded = (error: unknown): error is QueueError => error instanceof QueueError && !UNRECORDED.has(error.code);

/** What a repeat is told without acting; undefined when the turn is ours. */
async function earlierOutcome<Body>(database: Database, write: RetriedWrite): Promise<Outcome<Body> | undefined> {
  const { mine, earlier } = await takeTurn(database, write);
  if (earlier === undefined) return mine ? undefined : inProgress();
  if (earlier.requestHash !== write.requestHash) {
    return new QueueError('conflict', `${HEADER}: this key was used for another request`);
  }
  const stored: Stored<Body> = JSON.parse(earlier.answer);
  if (!('refusal' in stored)) return stored;
  const { code, message, details } = stored.refusal;
  return new QueueError(code, message, details === undefined ? {} : { details });
}

/** In one statement: the audit entry and, with a key, the answer. False: another answer came first, nothing was written. */
async function record<Body>(
  database: Database,
  write: RetriedWrite | undefined,
  entry: AskedEntry,
  outcome: Outcome<Body>,
): Promise<boolean> {
  const isRefusal = outcome instanceof QueueError;
  const target = isRefusal ? entry.target : (outcome.target ?? entry.target);
  const complete = { ...entry, target, status: isRefusal ? statusOf(outcome.code) : outcome.status };
  if (write !== undefined) return recordAnswer(database, write, JSON.stringify(toStored(outcome)), complete);
  await recordAudit(database, complete);
  return true;
}

function toStored<Body>(outcome: Outcome<Body>): Stored<Body> {
  const told = outcome instanceof QueueError ? outcome : (outcome.repeat ?? outcome);
  if (!(told instanceof QueueError)) return { status: told.status, body: told.body };
  const { code, message, details } = told;
  return { refusal: { code, message, ...(details === undefined ? {} : { details }) } };
}

function entryOf({ id, params, routeOptions }: FastifyRequest, key: { keyId: string; keyName: string }): AskedEntry {
  const { environment_id: environmentId = null, ...others } = params as Record<string, string>;
  return {
    keyId: key.keyId,
    keyName: key.keyName,
    action: routeOptions.schema?.operationId ?? '',
    environmentId,
    target: Object.values(others)[0] ?? null,
    requestId: id,
  };
}

const HEADER = 'Idempotency-Key';
const KEY = /^[\x20-\x7e]{1,255}$/;

/** Only on our own routes: the official ones know no such header. Refuses: invalid_request. */
function retriedWriteOf(request: FastifyRequest, caller: string): RetriedWrite | undefined {
  const { method, params, query, body, routeOptions } = request;
  const key = request.headers[HEADER.toLowerCase()];
  if (key === undefined || !routeOptions.url?.startsWith('/control/')) return undefined;
  if (typeof key !== 'string' || !KEY.test(key)) {
    throw new QueueError('invalid_request', `${HEADER} must be 1 to 255 printable ASCII characters`);
  }
  const asked = routeOptions.schema?.querystring === undefined ? null : query; // what is not declared is ignored
  return { caller, key, requestHash: hashCanonically([method, routeOptions.url, params, asked, body]) };
}

const inProgress = (): QueueError =>
  new QueueError('idempotency_in_progress', `${HEADER}: the first request with this key is still running, try again`);
