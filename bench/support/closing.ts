let isTold = false;
const open = new Set<() => Promise<unknown>>();

/** Whoever opens closes; this is for when the bench is told to end. Answers what closes it, once. */
export function closing(close: () => Promise<unknown>): () => Promise<void> {
  let closed: Promise<unknown> | undefined;
  const once = async () => {
    open.delete(once);
    closed ??= close();
    await closed;
  };
  open.add(once);
  return once;
}

/** What fails now fails for that. */
export const isClosing = (): boolean => isTold;

/** A signal closes everything, the last that was opened first. */
export function closeOnSignals(): void {
  for (const [signal, status] of [['SIGINT', 130] as const, ['SIGTERM', 143] as const]) {
    process.once(signal, async () => {
      isTold = true;
      for (const close of [...open].reverse()) await close().catch(() => {});
      process.exit(status);
    });
  }
}
