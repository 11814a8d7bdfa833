import { QueueError } from '../queue/errors.ts';

const WAITING_MAX = 1_000;

/**
 * One after another, by key: who would wait for the same row lock waits here, in order of arrival, and holds no database connection
 * meanwhile. Refuses: unavailable, where so many wait for one key already.
 */
export function createTurns({ waitingMax = WAITING_MAX } = {}) {
  const lines = new Map<string, { last: Promise<unknown>; waiting: number }>();
  return async <Result>(key: string, run: () => Promise<Result>): Promise<Result> => {
    const line = lines.get(key) ?? { last: Promise.resolve(), waiting: 0 };
    if (line.waiting >= waitingMax)
      throw new QueueError('unavailable', `${waitingMax} calls wait for this already, try again`);
    lines.set(key, line);
    line.waiting++;
    const turn = line.last.then(run);
    line.last = turn.catch(() => {}); // the next one's turn comes all the same
    try {
      return await turn;
    } finally {
      line.waiting--;
      if (line.waiting === 0) lines.delete(key);
    }
  };
}
