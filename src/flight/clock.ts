/** A monotonic clock in milliseconds, and one-shot timers; tests bring their own. */
export type Clock = {
  now(): number;
  /** Answers what ends it. */
  after(milliseconds: number, run: () => void): () => void;
};

export const REAL: Clock = {
  now: () => performance.now(),
  after(milliseconds, run) {
    const timer = setTimeout(run, milliseconds);
    return () => clearTimeout(timer);
  },
};

/** Rejects with the signal's reason as soon as it aborts, whatever becomes of the work. */
export async function unless<Result>(signal: AbortSignal | undefined, work: Promise<Result>): Promise<Result> {
  if (signal === undefined) return work;
  let abort = () => {};
  const aborted = new Promise<never>((_, reject) => {
    abort = () => reject(signal.reason);
    if (signal.aborted) abort();
    else signal.addEventListener('abort', abort, { once: true });
  });
  try {
    return await Promise.race([work, aborted]);
  } finally {
    signal.removeEventListener('abort', abort);
  }
}
