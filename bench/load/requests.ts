import { openAll } from './connection.ts';
import { Samples } from './samples.ts';
import { countdown, expect, requestTo, type Scenario, type Target } from './scenario.ts';

export type RequestsOptions = Target & {
  readonly path: string;
  readonly clients: number;
  /** Between an answer and the next request of a client, at random up to twice this; default 0. */
  readonly pauseMs?: number;
};

/** Asks for the same again and again. */
export async function requests({ path, clients, pauseMs = 0, ...target }: RequestsOptions): Promise<Scenario> {
  const connections = await openAll(target.url, clients);
  const get = new Samples();
  const { done, one: leave } = countdown(clients);
  let isStopped = false;
  return {
    samples: { get },
    done,
    start() {
      for (const [index, connection] of connections.entries()) {
        const request = requestTo(target, `worker-${index}`)('GET', path);
        const ask = () => {
          if (isStopped) return leave();
          const at = performance.now();
          connection.ask(request, (status, bytes, start, end) => {
            get.add(performance.now() - at);
            expect(200, path, status, bytes, start, end);
            if (pauseMs === 0) ask();
            else setTimeout(ask, 2 * pauseMs * Math.random());
          });
        };
        ask();
      }
    },
    stop() {
      isStopped = true;
    },
    close() {
      for (const connection of connections) connection.close();
    },
  };
}
