import { type Connection, openAll } from './connection.ts';
import { Samples } from './samples.ts';
import { countdown, expect, requestTo, type Scenario } from './scenario.ts';

export type PollsOptions = {
  readonly url: string;
  /** In turns among the workers. */
  readonly places: readonly { readonly environmentId: string; readonly key: string }[];
  readonly workers: number;
  /** Between an empty answer and the next poll, at random from the first to the second. */
  readonly sleepMs: readonly [number, number];
};

const BLOCK_MS = 999;
const NULL_BYTES = 4;

/** Workers that wait for what does not come. */
export async function polls({ url, places, workers, sleepMs }: PollsOptions): Promise<Scenario> {
  const connections = await openAll(url, workers);
  const empty = new Samples();
  const { done, one: leave } = countdown(workers);
  const stopping = new Set<() => void>();
  let isStopped = false;
  const [least, most] = sleepMs;

  const work = (connection: Connection, index: number) => {
    const place = places[index % places.length];
    if (place === undefined) throw new Error('no environment');
    const path = `/v1/environments/${place.environmentId}/work/poll?block_ms=${BLOCK_MS}`;
    const request = requestTo({ url, key: place.key }, `worker-${index}`)('GET', path);
    const poll = () => {
      if (isStopped) return leave();
      const at = performance.now();
      connection.ask(request, (status, bytes, start, end) => {
        empty.add(performance.now() - at);
        expect(200, 'a poll', status, bytes, start, end);
        if (end - start !== NULL_BYTES) throw new Error('there is something to take');
        sleep(least + Math.random() * (most - least));
      });
    };
    const sleep = (ms: number) => {
      if (isStopped) return leave();
      if (ms === 0) return poll();
      const wakeUp = () => {
        clearTimeout(timer);
        stopping.delete(wakeUp);
        poll();
      };
      const timer = setTimeout(wakeUp, ms);
      stopping.add(wakeUp);
    };
    sleep(Math.random() * (BLOCK_MS + most)); // not all at once: nor did they come so
  };

  return {
    samples: { empty },
    done,
    start: () => connections.forEach(work),
    stop() {
      isStopped = true;
      for (const wakeUp of [...stopping]) wakeUp();
    },
    close() {
      for (const connection of connections) connection.close();
    },
  };
}
