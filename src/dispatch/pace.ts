export type PaceOptions = {
  /** There may be work. */
  tell(): void;
  /** From a wake-up to what is told of it: 0, or the least age of what the reader may take. */
  readonly delayMs: number;
  now(): number;
};

/** Tells are so far apart at least. */
const APART_MS = 100;
/** Wake-ups that are told of later are told of together when they came within this part of the delay: no more are remembered than that. */
const PARTS_OF_DELAY = 10;

/**
 * Wake-ups for one reader, few and late enough: the first is told of at once, or after the delay, those that follow closely by one more, and the last is never lost.
 * One timer at a time, none while nothing is to be told. Whoever makes it has told already.
 */
export function createPace({ tell, delayMs, now }: PaceOptions) {
  const windowMs = Math.max(APART_MS, delayMs / PARTS_OF_DELAY);
  const windows: { readonly first: number; last: number }[] = [];
  let toldAt = now();
  let timer: NodeJS.Timeout | undefined;

  function settle(): void {
    timer = undefined;
    const [next] = windows;
    if (next === undefined) return;
    const waitMs = Math.max(next.last + delayMs, toldAt + APART_MS) - now();
    if (waitMs > 0) {
      timer = setTimeout(settle, Math.ceil(waitMs));
      return;
    }
    windows.shift();
    toldAt = now();
    tell();
    settle();
  }

  return {
    wake(): void {
      const at = now();
      const open = windows.at(-1);
      if (open !== undefined && at - open.first < windowMs) open.last = at;
      else windows.push({ first: at, last: at });
      if (timer === undefined) settle();
    },

    close(): void {
      clearTimeout(timer);
      windows.length = 0;
    },
  };
}

export type Pace = ReturnType<typeof createPace>;
