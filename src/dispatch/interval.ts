/**
 * Runs `task` every `intervalMs`, never twice at once: the next run is due an interval after the last one ended.
 * A failure is told to `onFault` and does not end the loop. `close` aborts the task's signal and waits for a run that is under way.
 */
export function startInterval(
  task: (closing: AbortSignal) => Promise<void>,
  intervalMs: number,
  onFault: (error: unknown) => void,
): { close(): Promise<void> } {
  let timer: NodeJS.Timeout | undefined;
  let running = Promise.resolve();
  const closing = new AbortController();
  const schedule = () => {
    timer = setTimeout(() => {
      running = task(closing.signal)
        .catch(onFault)
        .finally(() => closing.signal.aborted || schedule());
    }, intervalMs);
  };
  schedule();
  return {
    async close() {
      closing.abort();
      clearTimeout(timer);
      await running;
    },
  };
}
