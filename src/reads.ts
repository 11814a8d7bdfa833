import type { Database } from './db/connect.ts';
import type { createRefusals } from './dispatch/refusals.ts';
import type { createSightings } from './dispatch/sightings.ts';
import { diagnose } from './queue/diagnosis.ts';
import { checkRef, type WorkRef } from './queue/items.ts';
import { checkText, isStorable, LIMITS } from './queue/limits.ts';
import { list, retrieve } from './queue/read.ts';
import type { Refusal } from './queue/refusals.ts';
import { allStats, stats } from './queue/stats.ts';
import { workers } from './queue/workers.ts';

/** What is only read: lists and figures by the side pool, so that they hold up no heartbeat (design §5). */
export function createReads({
  database,
  sightings,
  refusals,
}: {
  readonly database: Database;
  readonly sightings: ReturnType<typeof createSightings>;
  readonly refusals: ReturnType<typeof createRefusals>;
}) {
  return {
    /** Of the wire lane only. Refuses: not_found. */
    async retrieve(ref: WorkRef) {
      checkRef(ref);
      return retrieve(database, ref);
    },

    /** The wire lane, newest first. Refuses: environment_not_found, invalid_request. */
    async list(environmentId: string, page: { limit: number; page?: string | undefined }) {
      checkText('environmentId', environmentId, LIMITS.idCharacters);
      return list(database.aside, environmentId, page);
    },

    /** Of the wire lane. Refuses: environment_not_found. */
    async stats(environmentId: string) {
      checkText('environmentId', environmentId, LIMITS.idCharacters);
      await sightings.flush();
      return stats(database.aside, environmentId);
    },

    /** The same figures of every self_hosted environment, and what is set aside there, in one statement. */
    async allStats() {
      await sightings.flush();
      return allStats(database.aside);
    },

    /** Who polls, and who holds what of the wire lane. Refuses: environment_not_found. */
    async workers(environmentId: string) {
      checkText('environmentId', environmentId, LIMITS.idCharacters);
      await sightings.flush();
      return workers(database.aside, environmentId);
    },

    /** Why work that workers poll does not move. Refuses: environment_not_found. */
    async diagnose(environmentId: string) {
      checkText('environmentId', environmentId, LIMITS.idCharacters);
      await Promise.all([sightings.flush(), refusals.flush()]);
      return diagnose(database.aside, environmentId);
    },

    /** Counts what a worker was refused, for the diagnosis. Costs the caller nothing; any text will do for an environment. */
    noteRefusal(environmentId: string, refusal: Refusal): void {
      if (environmentId.length <= LIMITS.idCharacters && isStorable(environmentId))
        refusals.note(environmentId, refusal);
    },
  };
}

export interface Reads extends ReturnType<typeof createReads> {}
