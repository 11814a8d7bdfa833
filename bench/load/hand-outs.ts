import { Connection, openAll, textOf } from './connection.ts';
import { Samples } from './samples.ts';
import { expect, requestTo, type Scenario, type Target } from './scenario.ts';

export type HandOutsOptions = Target & {
  readonly environmentId: string;
  /** Where items are put in, with an API key: another replica. */
  readonly enqueueing: Target;
  /** Polls that wait at a time, over and over. */
  readonly waiters: number;
  /** So many items, one after another; absent: until it is stopped. */
  readonly items?: number;
  /** After each, at random up to twice this: in step with nothing. */
  readonly pauseMs: number;
};

const BLOCK_MS = 999;
const NULL_BYTES = 4;
const ID = Buffer.from('"id":"');

/**
 * From the answer to an enqueue to the answer of the poll that gets the item; none at all, where the poll is answered first. Each item is
 * stopped at once, and the next comes after that.
 */
export async function handOuts(options: HandOutsOptions): Promise<Scenario> {
  const { environmentId, enqueueing, waiters, items = Number.POSITIVE_INFINITY, pauseMs } = options;
  const enqueuer = await Connection.open(enqueueing.url);
  const connections = await openAll(options.url, waiters);
  const path = `/v1/environments/${environmentId}/work`;
  const [handOut, enqueue, empty, early] = [new Samples(), new Samples(), new Samples(), new Samples()];
  const { promise: done, resolve } = Promise.withResolvers<void>();
  const put = requestTo(enqueueing, 'enqueuer');
  const run = Math.random().toString(36).slice(2);
  let [count, isStopped] = [0, false];
  /** What was put in last, and what is known of it. */
  let item = { id: '', answeredAt: 0, tookId: '', tookAt: 0, isOver: true };

  const next = () => {
    if (isStopped || count === items) return resolve();
    item = { id: '', answeredAt: 0, tookId: '', tookAt: 0, isOver: false };
    const at = performance.now();
    const body = JSON.stringify({ data: { type: 'session', id: `${run}-${count++}` } });
    enqueuer.ask(put('POST', `/control${path}`, body), (status, bytes, start, end) => {
      item.answeredAt = performance.now();
      enqueue.add(item.answeredAt - at);
      expect(201, 'an enqueue', status, bytes, start, end);
      item.id = textOf(ID, bytes, start, end);
      both();
    });
  };
  const both = () => {
    if (item.answeredAt === 0 || !item.isOver) return;
    if (item.id !== item.tookId) throw new Error(`${item.tookId} was handed out, ${item.id} was put in`);
    const ms = item.tookAt - item.answeredAt;
    handOut.add(Math.max(0, ms));
    if (ms < 0) early.add(-ms);
    setTimeout(next, 2 * pauseMs * Math.random());
  };

  const wait = (connection: Connection, index: number) => {
    const request = requestTo(options, `worker-${index}`);
    const pollRequest = request('GET', `${path}/poll?block_ms=${BLOCK_MS}`);
    const poll = () => {
      if (isStopped) return;
      const at = performance.now();
      connection.ask(pollRequest, (status, bytes, start, end) => {
        const now = performance.now();
        expect(200, 'a poll', status, bytes, start, end);
        if (end - start === NULL_BYTES) {
          empty.add(now - at);
          return poll();
        }
        item.tookAt = now;
        item.tookId = textOf(ID, bytes, start, end);
        stop(item.tookId);
      });
    };
    const stop = (id: string) => {
      connection.ask(request('POST', `${path}/${id}/stop`, '{"force":true}'), (status, bytes, start, end) => {
        expect(204, 'a stop', status, bytes, start, end);
        item.isOver = true;
        both();
        poll();
      });
    };
    setTimeout(poll, Math.random() * BLOCK_MS);
  };

  return {
    samples: { handOut, enqueue, empty, early },
    done,
    start() {
      connections.forEach(wait);
      setTimeout(next, 2 * BLOCK_MS); // all wait by then
    },
    stop() {
      isStopped = true;
    },
    close() {
      for (const connection of [enqueuer, ...connections]) connection.close();
    },
  };
}
