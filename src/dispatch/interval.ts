/**
 * Runs `task` every `intervalMs`, never twice at once: the next run is due an interval after the last one ended.
 * A failure is told to `onFault` and does not end the loop. `close` waits for a run that is under way.
 */
export function startInterval(
  task: () => Promise<void>,
  intervalMs: number,
  onFault: (error: unknown) => void,
): { close(): Promise<void> } {
  let timer: NodeJS.Timeout | undefined;
  let running = Promise.resolve();
  let closed = false;
  const schedule = () => {
    timer = setTimeout(() => {
      running = task()
        .catch(onFault)
        .finally(() => closed || schedule());
    }, intervalMs);
  };
  schedule();
  return {
    async close() {
      closed = true;
      clearTimeout(timer);
      await running;
    },
  };
}
