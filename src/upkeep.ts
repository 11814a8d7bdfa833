import { pruneControl } from './control/prune.ts';
import type { Database } from './db/connect.ts';
import { startInterval } from './dispatch/interval.ts';
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
};

/** Retention is counted in days, and pruning looks at every environment. */
const PRUNE_INTERVAL_MS_MIN = 10_000;

/** What has to be done also where nobody polls and nobody claims. Any number of replicas may do it. */
export function createUpkeep({ database, settings, wake }: UpkeepOptions) {
  /** Each is bounded: again until there is no more. */
  const untilDone = async (step: () => Promise<{ readonly more: boolean; readonly topics?: readonly string[] }>) => {
    for (let more = true; more; ) {
      const done = await step();
      done.topics?.forEach(wake);
      more = done.more;
    }
  };

  const sweepAll = async () => {
    await untilDone(() => rearmSessions(database)); // before the sweep: it goes by why the last item stopped
    await untilDone(() => sweep(database, settings));
    await untilDone(() => reap(database, settings));
    await untilDone(() => comeDue(database));
  };

  const pruneAll = async () => {
    await untilDone(() => prune(database, settings));
    await untilDone(() => pruneControl(database, settings));
    await untilDone(() => pruneSessions(database, settings));
  };

  return {
    /** One pass of everything. */
    async run(): Promise<void> {
      await sweepAll();
      await pruneAll();
    },

    /** Runs it by the clock until it is closed. */
    start(onFault: (error: unknown, what: string) => void): { close(): Promise<void> } {
      const pruneIntervalMs = Math.max(settings.sweepIntervalMs, PRUNE_INTERVAL_MS_MIN);
      const parts = [
        startInterval(sweepAll, settings.sweepIntervalMs, (error) => onFault(error, 'a sweep failed')),
        startInterval(pruneAll, pruneIntervalMs, (error) => onFault(error, 'pruning failed')),
      ];
      return {
        async close() {
          await Promise.all(parts.map((part) => part.close()));
        },
      };
    },
  };
}
