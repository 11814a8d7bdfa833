import { sql } from 'kysely';
import type { Database } from '../../src/db/connect.ts';
import { call, enqueue, type Place } from './call.ts';
import { type Load, type Measured, runFor, type Watched } from './load.ts';

/** What is measured in turns with others. */
export type Contender = {
  readonly name: string;
  /** One round with so many clients, of about so many seconds. */
  run(clients: number, seconds: number): Promise<Round>;
  /** After the warming up: what autovacuum does within a minute. */
  settle?(): Promise<void>;
};

/** What a round came to. `done`: whatever is counted by the second, a cycle or a request. */
export type Round = Measured & { readonly done: number; readonly requests: number };

/** Asks for a constant. */
export const asking = (name: string, load: Load, url: string, path: string, watched: Watched): Contender => ({
  name,
  async run(clients, seconds) {
    const running = await load.begin('requests', { url, path, clients, key: 'a-key-that-nobody-reads' }, watched);
    const measured = await runFor(seconds * 1_000, running);
    const done = measured.calls.get?.count ?? 0;
    return { ...measured, done, requests: done };
  },
});

const ITEMS_FIRST = 500;
/** Of a cycle: polls that found nothing are none of it. */
const CALLS = ['poll', 'ack', 'heartbeat', 'stop'];

/** Full cycles. The items of a round are enqueued before it, as many as by the last round's pace last for its time. */
export function cycling(name: string, load: Load, place: Place, database: Database, watched: Watched): Contender {
  const pace = new Map<number, number>();
  return {
    name,
    async settle() {
      await database.rows(sql`vacuum analyze ${database.names.workItems}`);
    },
    async run(clients, seconds) {
      const perSecond = pace.get(clients);
      const items = perSecond === undefined ? ITEMS_FIRST : Math.max(clients, Math.round(perSecond * seconds));
      await enqueue(place, items);
      const running = await load.begin('cycles', { ...place, clients, items }, watched);
      const measured = await running.finish();
      const done = measured.calls.stop?.count ?? 0;
      if (done !== items) throw new Error(`${name}: ${done} of ${items} cycles`);
      const { depth } = await call(place.url, 'GET', `/v1/environments/${place.environmentId}/work/stats`);
      if (depth !== 0) throw new Error(`${name}: ${depth} items are left`);
      pace.set(clients, done / measured.seconds);
      const requests = CALLS.reduce((sum, name) => sum + (measured.calls[name]?.count ?? 0), 0);
      return { ...measured, done, requests };
    },
  };
}

/** By contender and number of clients. */
export type Rounds = ReadonlyMap<string, readonly Round[]>;
export const placeOf = (name: string, clients: number): string => `${name}, ${clients} clients`;

/** Not counted: what is compiled, cached and planned for good comes of use, and the first tells the pace. */
const ROUNDS_OF_WARMING_UP = 2;

/** Rounds of all, in turns. */
export async function inTurns(
  contenders: readonly Contender[],
  clientCounts: readonly number[],
  { rounds, seconds }: { readonly rounds: number; readonly seconds: number },
): Promise<Rounds> {
  const results = new Map<string, Round[]>();
  for (let round = -ROUNDS_OF_WARMING_UP; round < rounds; round++) {
    if (round === 0) for (const contender of contenders) await contender.settle?.();
    for (const clients of clientCounts) {
      for (const contender of contenders) {
        const result = await contender.run(clients, seconds);
        if (round < 0) continue;
        const place = placeOf(contender.name, clients);
        results.set(place, [...(results.get(place) ?? []), result]);
      }
    }
  }
  return results;
}
