import { type RawBuilder, sql } from 'kysely';
import { type Extent, extentOf, type TableNames } from '../db/sql.ts';
import type { QueueError } from './errors.ts';
import { notFound, presentId, type WorkRef } from './items.ts';
import { isStorable } from './limits.ts';

/** What a statement answers for a row that somebody else holds, when it was told not to wait. */
export const HELD = Symbol('held by another transaction');

/** `skip`: rows that others hold are answered HELD, at once. `wait`: at most the lock timeout. */
export type Locking = 'skip' | 'wait';

/** `no key`: these verbs leave the id as it is, and a request id that was just remembered for the item must not hold them up. */
export const lockClause = (locking: Locking): RawBuilder<unknown> =>
  locking === 'skip' ? sql`for no key update of w skip locked` : sql`for no key update of w`;

/**
 * Of an item `w` that was found by its id: it is where the caller says, and polled. Not to be found by that: an index of the environment
 * would find all that it has, and looks better to the planner while a table has no statistics.
 */
export const isThere = sql`(w.environment_id = wanted.environment_id) is true`;
export const isPolled = sql`(w.lane = 'wire') is true`;

/** What a statement of a set differs in; it is compiled once for each. */
export type SetShape = `${Locking} ${Extent}`;
export const setShape = (locking: Locking, requests: readonly unknown[]): SetShape =>
  `${locking} ${extentOf(requests)}`;
export const readShape = (shape: SetShape): [Locking, Extent] => shape.split(' ') as [Locking, Extent];

/** What the statements of sets say of an id that they could not act on; `wanted` is theirs. All text: the connection may be a caller's. */
export type Missing = {
  readonly asked: string;
  readonly presentId: string | null;
  readonly held: 'true' | 'false' | null;
};

/**
 * For what is left of a set once it was put beside what was found of it, by a full join: that is part of it, so a left join would tell the same, but a full one cannot be a nested loop.
 * Taking the set for one row, the planner would choose that, and compare each with each.
 */
export const missingColumns = (
  names: TableNames,
  locking: Locking,
  found: RawBuilder<unknown>,
): RawBuilder<unknown> => {
  const held = sql`exists (select from ${names.workItems} w where w.id = wanted.id and ${isThere})`;
  const unlessFound = (answer: RawBuilder<unknown>) => sql`case when ${found} is null then ${answer} end`;
  return sql`wanted.id as asked, ${unlessFound(presentId(names, sql`wanted.environment_id`, sql`wanted.id`))} as "presentId",
    (${locking === 'skip' ? unlessFound(held) : sql`false`})::text as held`;
};

export const missing = ({ asked, presentId, held }: Missing): QueueError | typeof HELD =>
  held === 'true' ? HELD : notFound(asked, presentId);

/**
 * Runs a set so that one row never holds up its neighbours (design §3): an id stands in a statement once, the same again waits
 * for the statement after it; rows that others hold are passed over and then waited for one by one. Ids that cannot exist
 * never reach SQL. Outcomes come in the order asked. Throws when a statement fails: each item is then as it was, or done.
 */
export async function runSet<Request extends WorkRef, Outcome>(
  requests: readonly Request[],
  run: (set: readonly Request[], locking: Locking) => Promise<(Outcome | QueueError | typeof HELD)[]>,
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
    const answers = await run(
      round.map(([, request]) => request),
      round.length > 1 ? 'skip' : 'wait',
    );
    for (const [place, [index, request]] of round.entries()) {
      let answer = answers[place];
      if (answer === HELD) [answer] = await run([request], 'wait');
      if (answer !== undefined && answer !== HELD) outcomes.set(index, answer);
    }
  }
  return requests.map(({ id }, index) => outcomes.get(index) ?? notFound(id));
}
