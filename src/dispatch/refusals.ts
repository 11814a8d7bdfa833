import type { Refusal, Refused } from '../queue/refusals.ts';
import { createNotes } from './notes.ts';

export type RefusalsOptions = {
  record(refused: readonly Refused[]): Promise<void>;
  flushIntervalMs?: number;
  entriesMax?: number;
};

const FLUSH_INTERVAL_MS = 2_000;
/** Whoever has no key may name any environment: at most so many are counted between two writes. */
const ENTRIES_MAX = 1_000;

/** Refusals by this process, counted by environment and kind (see `createNotes`). */
export function createRefusals({
  record,
  flushIntervalMs = FLUSH_INTERVAL_MS,
  entriesMax = ENTRIES_MAX,
}: RefusalsOptions) {
  const notes = createNotes<{ environmentId: string; refusal: Refusal }>({
    record: (noted) => record(noted.map(({ times, ...refused }) => ({ ...refused, count: times }))),
    flushIntervalMs,
    notesMax: entriesMax,
  });
  return {
    note(environmentId: string, refusal: Refusal): void {
      notes.note(`${environmentId} ${refusal}`, { environmentId, refusal });
    },
    /** Writes what is counted so far: diagnosis asks for it. */
    flush: () => notes.flush(),
  };
}
