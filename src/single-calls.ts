import type { Database } from './db/connect.ts';
import { isDeadlock } from './db/failures.ts';
import { createBatches } from './dispatch/batches.ts';
import { ack } from './queue/ack.ts';
import { type Heartbeat, type HeartbeatRequest, heartbeat } from './queue/heartbeat.ts';
import { checkRef, type WorkItem, type WorkRef } from './queue/items.ts';
import { checkInteger, checkText, LIMITS } from './queue/limits.ts';
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

/** What workers call, an item each: those that come at the same time share their statements. */
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

  return {
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
  };
}
