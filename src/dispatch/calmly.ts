import timers from 'node:timers/promises';

/** After a step it rests so many times as long as the step took: who calls meanwhile hardly notices it. */
const REST_TIMES = 4;

/** Runs bounded steps until there is no more to do, or until `closing`, which also ends a rest: what is left is there the next time. */
export async function calmly(
  step: () => Promise<{ readonly more: boolean }>,
  closing: AbortSignal,
  now = () => performance.now(),
): Promise<void> {
  for (let more = true; more && !closing.aborted; ) {
    const beganAt = now();
    more = (await step()).more;
    if (more) await timers.setTimeout((now() - beganAt) * REST_TIMES, undefined, { signal: closing }).catch(() => {});
  }
}
