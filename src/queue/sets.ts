/**
 * Runs a set so that each id stands in a statement once: the same id again waits for the statement after it. Outcomes come
 * in the order asked.
 */
export async function eachIdOnce<Request extends { readonly id: string }, Outcome>(
  requests: readonly Request[],
  run: (set: readonly Request[]) => Promise<Outcome[]>,
): Promise<Outcome[]> {
  const rounds: { index: number; request: Request }[][] = [];
  const timesSeen = new Map<string, number>();
  for (const [index, request] of requests.entries()) {
    const round = timesSeen.get(request.id) ?? 0;
    timesSeen.set(request.id, round + 1);
    rounds[round] ??= [];
    rounds[round].push({ index, request });
  }
  const outcomes: Outcome[] = new Array(requests.length);
  for (const round of rounds) {
    const answers = await run(round.map(({ request }) => request));
    for (const [place, { index }] of round.entries()) outcomes[index] = answers[place] as Outcome;
  }
  return outcomes;
}
