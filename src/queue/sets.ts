import type { QueueError } from './errors.ts';
import { notFound, type WorkRef } from './items.ts';
import { isStorable } from './limits.ts';

/**
 * Runs a set so that each id stands in a statement once: the same id again waits for the statement after it. Ids that cannot
 * exist never reach SQL. Outcomes come in the order asked.
 */
export async function eachIdOnce<Request extends WorkRef, Outcome>(
  requests: readonly Request[],
  run: (set: readonly Request[]) => Promise<(Outcome | QueueError)[]>,
): Promise<(Outcome | QueueError)[]> {
  const outcomes = new Map<number, Outcome | QueueError>();
  const rounds: [index: number, request: Request][][] = [];
  const timesSeen = new Map<string, number>();
  for (const [index, request] of requests.entries()) {
    if (!isStorable(request.id) || !isStorable(request.environmentId)) continue;
    const round = timesSeen.get(request.id) ?? 0;
    timesSeen.set(request.id, round + 1);
    rounds[round] ??= [];
    rounds[round].push([index, request]);
  }
  for (const round of rounds) {
    const answers = await run(round.map(([, request]) => request));
    for (const [place, [index]] of round.entries()) {
      const answer = answers[place];
      if (answer !== undefined) outcomes.set(index, answer);
    }
  }
  return requests.map(({ id }, index) => outcomes.get(index) ?? notFound(id, false));
}
