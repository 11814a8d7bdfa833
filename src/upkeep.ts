import { pruneControl } from './control/prune.ts';
import type { Database } from './db/connect.ts';
import { calmly } from './dispatch/calmly.ts';
import { startInterval } from './dispatch/interval.ts';
import { pruneLocks } from './locks/prune.ts';
import { lookOver, type WaitingLine } from './look-over.ts';
import { comeDue } from './process/come-due.ts';
import { reap } from './process/reap.ts';
import { prune } from './queue/prune.ts';
import type { QueueSettings } from './queue/settings.ts';
import { sweep } from './queue/sweep.ts';
import { pruneSessions } from './sessions/prune.ts';
import { rearmSessions } from './sessions/rearm.ts';

export type UpkeepOptions = {
  readonly database: Database;
  readonly settings: QueueSettings;
  /** There may be work for this topic, here and elsewhere. */
  readonly wake: (topic: string) => void;
  /** Those who wait, or did a moment ago. */
  readonly lines: () => readonly WaitingLine[];
  /** There is something for this line. */
  readonly wakeLine: (line: WaitingLine) => void;
};

/** What no wake-up told of is found within this time. */
const LOOK_INTERVAL_MS_MAX = 900;

/** After so long without an answer nothing is known to be empty any more. */
const WATCHED_MS_MAX = 5_000;

/** Retention is counted in days, and pruning looks at every environment. */
const PRUNE_INTERVAL_MS_MIN = 10_000;

/** What has to be done also where nobody polls and nobody claims. Any number of replicas may do it. */
export function createUpkeep({ database, settings, wake, lines, wakeLine }: UpkeepOptions) {
  /** Each is bounded: again until there is no more. */
  const untilDone = async (step: () => Promise<{ readonly more: boolean; readonly topics?: readonly string[] }>) => {
    for (let more = true; more; ) {
      const done = await step();
      done.topics?.forEach(wake);
      more = done.more;
    }
  };

  const rearm = () => untilDone(() => rearmSessions(database));
  const sweepAll = () => untilDone(() => sweep(database, settings));
  const reapAll = () => untilDone(() => reap(database, settings));
  const placeDue = () => untilDone(() => comeDue(database));

  let sweptAt = Number.NEGATIVE_INFINITY;
  let lookedAt = Number.NEGATIVE_INFINITY;
  /** One statement tells what there is to do, also where there is nothing. */
  const look = async () => {
    const waiting = lines();
    const beganAt = performance.now();
    const { found, isToSweep, isToReap, isDue, isUnserved } = await lookOver(database, waiting);
    lookedAt = beganAt;
    for (const index of found) {
      const line = waiting[index];
      if (line !== undefined) wakeLine(line);
    }
    if (performance.now() - sweptAt < settings.sweepIntervalMs - LOOK_INTERVAL_MS_MAX / 2) return;
    sweptAt = performance.now();
    if (isUnserved) await rearm(); // before the sweep: it goes by why the last item stopped
    if (isToSweep) await sweepAll();
    if (isToReap) await reapAll();
    if (isDue) await placeDue();
  };

  const prunings = [prune, pruneControl, pruneSessions, pruneLocks];
  const pruneAll = async () => {
    for (const pruning of prunings) await untilDone(() => pruning(database, settings));
  };

  const pruneCalmly = async (closing: AbortSignal) => {
    for (const pruning of prunings) await calmly(() => pruning(database, settings), closing);
  };

  return {
    /** Whether all lines are looked over: while it is closed or the database does not answer, they are not. */
    isWatching: () => performance.now() - lookedAt < WATCHED_MS_MAX,

    /** One pass of everything. */
    async run(): Promise<void> {
      for (const part of [rearm, sweepAll, reapAll, placeDue, pruneAll]) await part();
    },

    /** Runs it by the clock until it is closed. */
    start(onFault: (error: unknown, what: string) => void): { close(): Promise<void> } {
      const pruneIntervalMs = Math.max(settings.sweepIntervalMs, PRUNE_INTERVAL_MS_MIN);
      const parts = [
        startInterval(look, Math.min(settings.sweepIntervalMs, LOOK_INTERVAL_MS_MAX), (error) =>
          onFault(error, 'a look over all failed'),
        ),
        startInterval(pruneCalmly, pruneIntervalMs, (error) => onFault(error, 'pruning failed')),
      ];
      return {
        async close() {
          await Promise.all(parts.map((part) => part.close()));
        },
      };
    },
  };
}
