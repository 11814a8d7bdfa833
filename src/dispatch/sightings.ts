import type { Sighting } from '../queue/sightings.ts';
import { createNotes } from './notes.ts';

export type SightingsOptions = {
  record(sightings: readonly Sighting[]): Promise<void>;
  flushIntervalMs?: number;
  workersMax?: number;
};

const FLUSH_INTERVAL_MS = 2_000;
const WORKERS_MAX = 50_000;

/** Polls seen by this process, noted by worker (see `createNotes`). */
export function createSightings({
  record,
  flushIntervalMs = FLUSH_INTERVAL_MS,
  workersMax = WORKERS_MAX,
}: SightingsOptions) {
  const notes = createNotes<Omit<Sighting, 'ageMs'>>({ record, flushIntervalMs, notesMax: workersMax });
  return {
    note(environmentId: string, workerId: string | null): void {
      if (workerId !== null) notes.note(`${environmentId} ${workerId}`, { environmentId, workerId });
    },
    /** Writes what is noted so far: stats asks for it, so that a process always counts its own polls. */
    flush: () => notes.flush(),
  };
}
