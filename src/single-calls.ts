import { sql } from 'kysely';
import { type AskedEntry, auditInsert } from './control/audit.ts';
import type { Database } from './db/connect.ts';
import { isDeadlock } from './db/failures.ts';
import { given } from './db/sql.ts';
import { createBatches } from './dispatch/batches.ts';
import { ack } from './queue/ack.ts';
import { checkEnqueue } from './queue/check-enqueue.ts';
import { type Enqueued, type EnqueueRequest, enqueue, enqueueEach } from './queue/enqueue.ts';
import type { QueueError } from './queue/errors.ts';
import { type Heartbeat, type HeartbeatRequest, heartbeat } from './queue/heartbeat.ts';
import { holderByToken } from './queue/holder.ts';
import { checkRef, type WorkItem, type WorkRef } from './queue/items.ts';
import { checkInteger, checkText, LIMITS } from './queue/limits.ts';
import { type Report, reportOutcome } from './queue/outcome.ts';
import type { HandOut } from './queue/poll.ts';
import { release } from './queue/release.ts';
import { HELD } from './queue/sets.ts';
import type { QueueSettings } from './queue/settings.ts';
import { type Stopped, type StopRequest, stop } from './queue/stop.ts';

/** A heartbeat as callers ask for it; `desiredTtlSeconds` at least 1, clamped, absent: as the environment says. */
export type BeatRequest = Omit<HeartbeatRequest, 'desiredTtlSeconds'> & {
  readonly desiredTtlSeconds?: number | undefined;
};

/** Refuses: invalid_request. */
export function toHeartbeat({ desiredTtlSeconds, ...request }: BeatRequest): HeartbeatRequest {
  checkText('expectedLastHeartbeat', request.expectedLastHeartbeat, LIMITS.heartbeatTokenCharacters);
  if (desiredTtlSeconds === undefined) return { ...request, desiredTtlSeconds: null };
  checkInteger('desiredTtlSeconds', desiredTtlSeconds, 1, Number.MAX_SAFE_INTEGER);
  return { ...request, desiredTtlSeconds: Math.min(desiredTtlSeconds, LIMITS.leaseTtlSeconds) };
}

/** An enqueue, and who asked for it where that is recorded. */
type EnqueueCall = { readonly request: EnqueueRequest; readonly entry: AskedEntry | undefined };

/** Calls that come one item each: those that come at the same time share their statements. */
export function createSingleCalls({
  database,
  settings,
  wake,
}: {
  readonly database: Database;
  readonly settings: QueueSettings;
  readonly wake: (environmentId: string) => void;
}) {
  const byId = { keyOf: ({ id }: WorkRef) => id, isDeadlock };
  const acks = createBatches({
    run: (set: readonly WorkRef[], locking) => ack(database, set, settings, locking),
    ...byId,
  });
  const beats = createBatches({
    run: (set: readonly HeartbeatRequest[], locking) => heartbeat(database, set, settings, locking),
    ...byId,
  });
  const stops = createBatches({ run: (set: readonly StopRequest[], locking) => stop(database, set, locking), ...byId });
  const enqueues = createBatches({
    run: (set: readonly EnqueueCall[], locking) => enqueueSet(database, set, locking === 'wait'),
    // Two of one slot may share a statement: the first covers the second.
    keyOf: ({ request: { environmentId, requestId, sessionId, kind } }) =>
      JSON.stringify(requestId === undefined ? [environmentId, sessionId, kind] : [environmentId, requestId]),
    weightOf: ({ request: { input } }) => (input === undefined ? 0 : JSON.stringify(input).length),
    isDeadlock,
  });

  return {
    /** Nobody is woken: see `announce`. `entry` is recorded with it. Refuses as `enqueue`. */
    async enqueueOne(request: EnqueueRequest, entry?: AskedEntry): Promise<Enqueued> {
      checkEnqueue(request);
      return enqueues({ request, entry });
    },

    /** Refuses: not_found. */
    async ackOne(ref: WorkRef): Promise<WorkItem> {
      checkRef(ref);
      return acks(ref);
    },

    /** Refuses: invalid_request, not_found, precondition_failed. */
    async heartbeatOne(request: BeatRequest): Promise<Heartbeat> {
      checkRef(request);
      return beats(toHeartbeat(request));
    },

    /** Polls are woken where its follow-up was enqueued with it. Refuses: not_found, conflict. */
    async stopOne(request: StopRequest): Promise<Stopped> {
      checkRef(request);
      const stopped = await stops(request);
      if (stopped.isFollowed) wake(request.environmentId);
      return stopped;
    },

    /** Gives an item back, now or `delayMs` later, by its hand-out. Refuses: not_found, precondition_failed, invalid_request (see `release`). */
    async release({ item, sessionsToken }: HandOut, { delayMs = 0 }: { delayMs?: number } = {}) {
      const released = await release(database, { ...holderByToken(item, sessionsToken), delayMs });
      if (released.isFree) wake(item.environmentId);
      return released;
    },

    /** Says what became of an item, by its hand-out. Refuses: not_found, precondition_failed, conflict, invalid_request (see `reportOutcome`). */
    async reportOutcome({ item, sessionsToken }: HandOut, report: Report) {
      const request = { ...report, ...holderByToken(item, sessionsToken), reason: 'worker' } as const;
      const reported = await reportOutcome(database, request, settings);
      if (reported.isFollowed) wake(item.environmentId);
      return reported;
    },
  };
}

export interface SingleCalls extends ReturnType<typeof createSingleCalls> {}

type Outcomes = (Enqueued | QueueError | typeof HELD)[];

async function enqueueSet(database: Database, calls: readonly EnqueueCall[], isAlone: boolean): Promise<Outcomes> {
  const [only] = calls;
  if (isAlone && only !== undefined) {
    return [await enqueue(database, only.request, undefined, entriesOf(database, [only]))];
  }
  const outcomes = await enqueueEach(
    database,
    calls.map(({ request }) => request),
    entriesOf(database, calls),
  );
  if (calls.length === 1 || outcomes.some((outcome) => outcome !== HELD)) return outcomes;
  // One of them holds up all: which one is found by halves, each as impatient, so that the others need not wait in line behind it.
  const half = Math.ceil(calls.length / 2);
  const halves = [calls.slice(0, half), calls.slice(half)];
  return (await Promise.all(halves.map((some) => enqueueSet(database, some, false)))).flat();
}

/** The audit entries of those that have one, as part of the statement: its `answer` tells what came of each. */
function entriesOf(database: Database, calls: readonly EnqueueCall[]) {
  if (calls.every(({ entry }) => entry === undefined)) return undefined;
  const column = (name: keyof AskedEntry) => ['text', ({ entry }: EnqueueCall) => entry?.[name]] as const;
  const entries = given(calls, {
    ...{ key_id: column('keyId'), key_name: column('keyName'), action: column('action') },
    ...{ place: column('environmentId'), request: column('requestId') },
  });
  return auditInsert(
    database.names,
    {
      ...{ keyId: sql`t.key_id`, keyName: sql`t.key_name`, action: sql`t.action`, environmentId: sql`t.place` },
      ...{ target: sql`n.id`, status: sql`case when n.created then 201 else 200 end`, requestId: sql`t.request` },
    },
    sql`from answer n join ${entries} on t.slot = n.slot where n.id is not null and t.key_id is not null`,
  );
}
