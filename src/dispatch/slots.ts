/** Runs at most so many at a time; the rest wait, in order of their asking. One that finds a slot free begins at once. */
export function createSlots(max: number) {
  let taken = 0;
  const waiting: (() => void)[] = [];
  return async <Result>(run: () => Promise<Result>): Promise<Result> => {
    if (taken < max) taken++;
    else await new Promise<void>((resolve) => waiting.push(resolve)); // the slot is handed on, nobody comes in between
    try {
      return await run();
    } finally {
      const next = waiting.shift();
      if (next === undefined) taken--;
      else next();
    }
  };
}
