import { until } from './harness.ts';

/** Contract: revocation and expiry act within this time, on every replica, on requests that are sent after it. */
export const WITHIN_MS = 1_000;

/** Uses a key until it is refused; answers when the last request that was let in had been sent: so a slow answer says nothing. */
export async function lastUse(use: () => Promise<number>, letIn = 200): Promise<number> {
  let last = Number.NEGATIVE_INFINITY;
  await until('the key to be refused', async () => {
    const sentAt = performance.now();
    const answered = await use();
    if (answered === letIn) last = sentAt;
    else if (answered !== 401) throw new Error(`answered ${answered}`);
    return answered === 401;
  });
  return last;
}
