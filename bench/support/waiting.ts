export const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

const AT_ONCE = 16;

/** Runs so many at a time; the results stand in the order of what was to be run. */
export async function inParallel<T>(runs: readonly (() => Promise<T>)[], atOnce = AT_ONCE): Promise<T[]> {
  const results: T[] = [];
  const left = runs.entries();
  const lane = async () => {
    for (const [index, run] of left) results[index] = await run();
  };
  await Promise.all(Array.from({ length: atOnce }, lane));
  return results;
}

const LOOK_MS = 20;

/** Looks again and again, until it is so. Throws when it takes too long. */
export async function until(isSo: () => Promise<boolean>, msMax: number): Promise<void> {
  for (const late = performance.now() + msMax; !(await isSo()); await pause(LOOK_MS)) {
    if (performance.now() > late) throw new Error(`not within ${msMax} ms: ${isSo}`);
  }
}
