import { type Connection, openAll, textOf } from './connection.ts';
import { Samples } from './samples.ts';
import { countdown, expect, requestTo, type Scenario, type Target } from './scenario.ts';

export type CyclesOptions = Target & {
  readonly environmentId: string;
  readonly clients: number;
  /** So many cycles; absent: until it is stopped. */
  readonly items?: number;
  /** Puts in an item after each cycle, with this API key: the depth stays. */
  readonly refillKey?: string;
  /** After each cycle, at random up to twice this; default 0. */
  readonly pauseMs?: number;
};

const ID = Buffer.from('"id":"');
/** As the official workers ask. */
const BLOCK_MS = 999;
const NULL_BYTES = 4;

/**
 * Workers that poll, ack, claim by the first heartbeat and stop, one item after another. No more polls are sent than there are items:
 * nobody waits for what is not there.
 */
export async function cycles(options: CyclesOptions): Promise<Scenario> {
  const { environmentId, clients, items = Number.POSITIVE_INFINITY, refillKey, pauseMs = 0 } = options;
  const connections = await openAll(options.url, clients);
  const names = ['poll', 'ack', 'heartbeat', 'stop', 'enqueue', 'empty'] as const;
  const samples = Object.fromEntries(names.map((name) => [name, new Samples()])) as Record<
    (typeof names)[number],
    Samples
  >;
  const { done, one: leave } = countdown(clients);
  const run = Math.random().toString(36).slice(2);
  let [left, refilled, isStopped] = [items, 0, false];

  const work = (connection: Connection, index: number) => {
    const request = requestTo(options, `worker-${index}`);
    const path = `/v1/environments/${environmentId}/work`;
    const pollRequest = request('GET', `${path}/poll?block_ms=${BLOCK_MS}`);
    const refill = requestTo({ url: options.url, key: refillKey ?? '' }, `worker-${index}`);

    const poll = () => {
      if (left === 0 || isStopped) return leave();
      left--;
      const at = performance.now();
      connection.ask(pollRequest, (status, bytes, start, end) => {
        const ms = performance.now() - at;
        expect(200, 'a poll', status, bytes, start, end);
        if (end - start === NULL_BYTES) {
          samples.empty.add(ms);
          left++;
          return poll();
        }
        samples.poll.add(ms);
        ack(textOf(ID, bytes, start, end));
      });
    };
    const ack = (id: string) => {
      const at = performance.now();
      connection.ask(request('POST', `${path}/${id}/ack`), (status, bytes, start, end) => {
        samples.ack.add(performance.now() - at);
        expect(200, 'an ack', status, bytes, start, end);
        heartbeat(id);
      });
    };
    const heartbeat = (id: string) => {
      const at = performance.now();
      const first = request('POST', `${path}/${id}/heartbeat?expected_last_heartbeat=NO_HEARTBEAT`);
      connection.ask(first, (status, bytes, start, end) => {
        samples.heartbeat.add(performance.now() - at);
        expect(200, 'a heartbeat', status, bytes, start, end);
        stop(id);
      });
    };
    const stop = (id: string) => {
      const at = performance.now();
      connection.ask(request('POST', `${path}/${id}/stop`, '{"force":true}'), (status, bytes, start, end) => {
        samples.stop.add(performance.now() - at);
        expect(204, 'a stop', status, bytes, start, end);
        if (refillKey !== undefined) enqueue();
        else rest();
      });
    };
    const enqueue = () => {
      const at = performance.now();
      const body = JSON.stringify({ data: { type: 'session', id: `${run}-${refilled++}` } });
      connection.ask(refill('POST', `/control${path}`, body), (status, bytes, start, end) => {
        samples.enqueue.add(performance.now() - at);
        expect(201, 'an enqueue', status, bytes, start, end);
        rest();
      });
    };
    const rest = () => {
      if (pauseMs === 0) poll();
      else setTimeout(poll, 2 * pauseMs * Math.random());
    };
    poll();
  };

  return {
    samples,
    done,
    start: () => connections.forEach(work),
    stop() {
      isStopped = true;
    },
    close() {
      for (const connection of connections) connection.close();
    },
  };
}
