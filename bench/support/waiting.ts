export const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

const LOOK_MS = 20;

/** Looks again and again, until it is so. Throws when it takes too long. */
export async function until(isSo: () => Promise<boolean>, msMax: number): Promise<void> {
  for (const late = performance.now() + msMax; !(await isSo()); await pause(LOOK_MS)) {
    if (performance.now() > late) throw new Error(`not within ${msMax} ms: ${isSo}`);
  }
}
