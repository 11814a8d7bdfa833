import { mock } from 'node:test';
import type { Test } from 'tap';
import { createHandOuts, type HandOutsOptions } from '../../src/dispatch/hand-outs.ts';
import type { HandOut } from '../../src/queue/poll.ts';
import { turn, watchPromise } from './gates.ts';

type Look = {
  readonly environmentId: string;
  readonly minQueuedAgeMs: number;
  readonly takers: readonly string[];
  readonly isDeep: boolean;
  find(...items: string[]): Promise<void>;
  /** The same when items were set aside beside. */
  setAside(count: number, ...items: string[]): Promise<void>;
  /** The same when what is held lapses in so many ms. */
  findBefore(lapsesInMs: number, ...items: string[]): Promise<void>;
  fail(): Promise<void>;
};

const handOutOf = (id: string) => ({ item: { id } }) as HandOut;

/** Hand-outs whose looks the test answers, and whose clock it moves. */
export function gatedHandOuts(t: Test, options: Partial<HandOutsOptions> = {}) {
  mock.timers.enable({ apis: ['setTimeout'] });
  t.teardown(() => mock.timers.reset());
  const looks: Look[] = [];
  const back: string[] = [];
  const handOuts = createHandOuts({
    look: (environmentId, minQueuedAgeMs, takers, isDeep) =>
      new Promise((resolve, reject) => {
        const answer = async (count: number, lapsesInMs: number | null, items: readonly string[]) => {
          const handOuts = takers.map((_, n) => (items[n] === undefined ? null : handOutOf(items[n])));
          resolve({ handOuts, setAside: count, lapsesInMs });
          await turn();
        };
        looks.push({
          environmentId,
          minQueuedAgeMs,
          takers: takers.map((taker) => taker.workerId ?? ''),
          isDeep,
          find: (...items) => answer(0, null, items),
          setAside: (count, ...items) => answer(count, null, items),
          findBefore: (lapsesInMs, ...items) => answer(0, lapsesInMs, items),
          async fail() {
            reject(new Error('the database is gone'));
            await turn();
          },
        });
      }),
    putBack: async ({ item }) => void back.push(item.id),
    ...options,
  });
  /** A poll named by its worker. */
  const take = (workerId: string, blockMs?: number, environmentId = 'env', minQueuedAgeMs = 0) => {
    const client = new AbortController();
    const request = {
      environmentId,
      workerId,
      blockMs,
      reclaimOlderThanMs: 5_000,
      minQueuedAgeMs,
      signal: client.signal,
    };
    const seen = watchPromise(handOuts.take(request).then((handOut) => handOut?.item.id ?? null));
    return { seen, leave: () => client.abort() };
  };
  return { handOuts, looks, back, take, takers: () => looks.map((look) => look.takers) };
}
