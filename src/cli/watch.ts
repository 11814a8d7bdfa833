import { ControlError, wait } from '../client/call.ts';
import type { ControlClient } from '../client/control-client.ts';
import type { Desk } from './desk.ts';
import { isOutOfReach, sayingOf } from './failures.ts';
import { visible } from './table.ts';

type Details = Awaited<ReturnType<ControlClient['requeueWork']>>;

export type Watched = {
  /** What is there now, the newest first. */
  readonly look: () => Promise<readonly Details[]>;
  readonly intervalMs: number;
  /** Of a single item. */
  readonly untilStopped: boolean;
};

/**
 * A line for each live item that is there, then one for each that comes or changes, until Ctrl-C. What comes and goes between
 * two looks is not seen.
 */
export async function watchWork(desk: Desk, { look, intervalMs, untilStopped }: Watched): Promise<void> {
  const seen = new Map<string, string>();
  let isFirst = true;
  await repeat(desk, intervalMs, async () => {
    const items = await look();
    const current = new Set<string>();
    for (const item of [...items].reverse()) {
      const change = [item.id, item.state, item.worker_id, item.stop_reason, item.hand_out_count].join();
      const name = nameOf(item);
      current.add(name);
      const isNews = seen.get(name) !== change && !(isFirst && !untilStopped && item.state === 'stopped');
      seen.set(name, change);
      if (isNews) desk.context.print(`${desk.isJson ? JSON.stringify(item) : lineOf(item)}\n`);
    }
    for (const name of seen.keys()) if (!current.has(name)) seen.delete(name);
    isFirst = false;
    return untilStopped && items.every(({ state }) => state === 'stopped');
  });
}

/**
 * Looks again and again, until one look says that it was the last, or Ctrl-C. A server that is away is told of once and waited
 * for, unless it has never answered.
 */
export async function repeat({ context }: Desk, intervalMs: number, look: () => Promise<boolean>): Promise<void> {
  const interrupted = context.interrupted();
  let isAway = false;
  for (let hasAnswered = false; !interrupted.aborted; ) {
    try {
      if (await look()) return;
      if (isAway) context.tell('leasehold: the server answers again');
      [hasAnswered, isAway] = [true, false];
    } catch (error) {
      const isPassing = error instanceof ControlError && (isOutOfReach(error) || error.status === 503);
      if (!hasAnswered || !isPassing) throw error;
      if (!isAway) context.tell(`leasehold: ${sayingOf(error)}, trying again`);
      isAway = true;
    }
    await wait(intervalMs, interrupted).catch(() => {}); // Ctrl-C
  }
}

/** It keeps this when it is handed out again and gets a new id. */
const nameOf = ({ data, kind, created_at }: Details): string => JSON.stringify([data.id, kind, created_at]);

function lineOf(item: Details): string {
  const by = item.worker_id === null ? '' : `, ${item.state === 'stopped' ? 'last with' : 'with'} ${item.worker_id}`;
  const why = item.stop_reason === null ? '' : ` (${item.stop_reason})`;
  return visible(`${item.id} of ${item.data.id} is ${item.state}${why}${by}`);
}
