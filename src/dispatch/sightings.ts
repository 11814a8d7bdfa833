import type { Sighting } from '../queue/sightings.ts';

export type SightingsOptions = {
  record(sightings: readonly Sighting[]): Promise<void>;
  flushIntervalMs?: number;
  workersMax?: number;
};

const FLUSH_INTERVAL_MS = 2_000;
const WORKERS_MAX = 50_000;

/**
 * Polls seen by this process, written together: a poll costs no write of its own. Best effort: a failed write is
 * forgotten, never felt by a poll; past the bound new workers are not counted.
 */
export function createSightings({
  record,
  flushIntervalMs = FLUSH_INTERVAL_MS,
  workersMax = WORKERS_MAX,
}: SightingsOptions) {
  const seen = new Map<string, { environmentId: string; workerId: string; at: number }>();
  let timer: NodeJS.Timeout | undefined;
  let writing = Promise.resolve();

  /** Ends when all that was noted is written, also what an earlier flush is still writing. */
  function flush(): Promise<void> {
    clearTimeout(timer);
    timer = undefined;
    if (seen.size === 0) return writing;
    const now = performance.now();
    const sightings = [...seen.values()].map(({ at, ...who }) => ({ ...who, ageMs: now - at }));
    seen.clear();
    writing = Promise.all([writing, record(sightings).catch(() => {})]).then(() => {});
    return writing;
  }

  return {
    note(environmentId: string, workerId: string | null): void {
      if (workerId === null) return;
      const key = `${environmentId} ${workerId}`;
      if (seen.size >= workersMax && !seen.has(key)) return;
      seen.set(key, { environmentId, workerId, at: performance.now() });
      timer ??= setTimeout(() => void flush(), flushIntervalMs);
    },
    /** Writes what is noted so far: stats asks for it, so that a process always counts its own polls. */
    flush,
  };
}
