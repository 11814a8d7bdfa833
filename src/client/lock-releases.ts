import { openEvents } from './open-events.ts';
import type { StreamOptions } from './stream-of.ts';

/** A stream that was refused for good is asked for again after this: the key may have been exchanged by then, and whoever waits has its own clock. */
const AGAIN_MS = 30_000;

/**
 * Who waits for the release of which lock of an environment: one event stream for all of them, open while anybody waits: it is opened when one asks whether it
 * will be told (`isTold`), which who gets the lock does not. While it is not open, releases are not heard of.
 */
export function createLockReleases(options: StreamOptions, environmentId: string) {
  const waiting = new Map<string, Set<() => void>>();
  let stop: AbortController | undefined;
  let isAttached = false;
  let refusedAt = Number.NEGATIVE_INFINITY;

  const tell = (name: string) => {
    for (const listener of [...(waiting.get(name) ?? [])]) listener();
  };

  async function run({ signal }: AbortController): Promise<void> {
    try {
      for await (const event of openEvents(options, environmentId, { signal })) {
        if (event.type === 'attached') isAttached = true;
        if (event.type === 'lock_released') tell(event.name);
        else if (event.type === 'attached' || event.type === 'hints_missed') {
          for (const name of [...waiting.keys()]) tell(name); // what was told before may be lost
        }
      }
    } catch {
      refusedAt = performance.now(); // whoever waits asks by the clock
    }
    if (signal !== stop?.signal) return;
    isAttached = false;
    stop = undefined;
  }

  return {
    isTold(): boolean {
      if (stop === undefined && waiting.size > 0 && performance.now() - refusedAt > AGAIN_MS) {
        stop = new AbortController();
        void run(stop);
      }
      return isAttached;
    },

    /** Answers what ends it. */
    onRelease(name: string, listener: () => void): () => void {
      const own = () => listener();
      waiting.set(name, (waiting.get(name) ?? new Set()).add(own));
      return () => {
        const others = waiting.get(name);
        others?.delete(own);
        if (others?.size === 0) waiting.delete(name);
        if (waiting.size > 0) return;
        stop?.abort();
        stop = undefined;
        isAttached = false;
      };
    },
  };
}
