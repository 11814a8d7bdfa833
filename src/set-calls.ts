import { type CallerTransaction, type Database, within } from './db/connect.ts';
import type { Hint } from './dispatch/hints.ts';
import { ack } from './queue/ack.ts';
import { heartbeat } from './queue/heartbeat.ts';
import type { WorkRef } from './queue/items.ts';
import { runSet } from './queue/sets.ts';
import type { QueueSettings } from './queue/settings.ts';
import { type StopRequest, stop } from './queue/stop.ts';
import { type BeatRequest, toHeartbeat } from './single-calls.ts';

/** Calls that come with many items each, for embedders: a refusal is its item's alone. */
export function createSetCalls({
  database,
  settings,
  wake,
  hint,
}: {
  readonly database: Database;
  readonly settings: QueueSettings;
  readonly wake: (environmentId: string) => void;
  readonly hint: (environmentId: string, told: Hint) => void;
}) {
  return {
    /** Acknowledges a set. Each item: itself, or a refusal (not_found). */
    ack: (refs: readonly WorkRef[]) => runSet(refs, (set, locking) => ack(database, set, settings, locking)),

    /** Extends a set of leases. Each item: the heartbeat, or a refusal (not_found, precondition_failed). */
    heartbeat: (requests: readonly BeatRequest[]) =>
      runSet(requests.map(toHeartbeat), (set, locking) => heartbeat(database, set, settings, locking)),

    /**
     * Stops a set; the follow-ups of what frees its slot are enqueued with it. Each item: its new state, or a refusal (not_found,
     * conflict). In `transaction` waiting polls are not woken: call `wake` after the commit.
     */
    async stop(requests: readonly StopRequest[], transaction?: CallerTransaction) {
      const place = transaction === undefined ? database : within(database, transaction);
      const outcomes = await runSet(requests, (set, locking) => stop(place, set, locking));
      for (const [index, outcome] of outcomes.entries()) {
        const request = requests[index];
        if (request !== undefined && 'isFollowed' in outcome && outcome.isFollowed && !transaction) {
          wake(request.environmentId);
        }
        if (request?.reason === 'operator' && 'isFollowed' in outcome && !transaction) {
          hint(request.environmentId, { type: 'stop_requested', workId: request.id });
        }
      }
      return outcomes;
    },
  };
}

export interface SetCalls extends ReturnType<typeof createSetCalls> {}
