/** Times are rounded up to this, so that there is a bound to how many are kept. */
const ROUND_MS = 50;
/** What is due later is left to the backstop. */
const AHEAD_MS_MAX = 60_000;

/** When failed attempts are due again, as instants of the local clock. */
export function createDueTimes(now: () => number = () => performance.now()) {
  const times = new Set<number>();
  return {
    add(at: number): void {
      if (at - now() <= AHEAD_MS_MAX) times.add(Math.ceil(at / ROUND_MS + 1) * ROUND_MS);
    },
    /** Infinity without one. */
    next: (): number => Math.min(...times),
    pass(until: number): void {
      for (const at of times) if (at <= until) times.delete(at);
    },
  };
}
