import { createServer, type IncomingMessage, request, type ServerResponse } from 'node:http';
import type { Test } from 'tap';
import { listenOnLoopback } from './loopback.ts';

export type Passed = {
  readonly method: string;
  readonly path: string;
  /** The client's mark of a retry. */
  readonly retryCount: string | undefined;
  readonly status: number;
  /** Applied, and its answer lost. */
  readonly dropped: boolean;
};

export type FaultyProxy = {
  readonly url: string;
  /** Each request whose answer has begun. */
  readonly seen: Passed[];
  /** From now on the answers of requests that it says true of are lost after they were applied. */
  dropWhere(isLost: (passed: Omit<Passed, 'dropped'>) => boolean): void;
  /** Breaks the connections of the streams that are open, in the middle of their answer; answers how many. */
  cutStreams(): number;
  readonly openStreams: () => number;
};

const STREAM = /\/events\/stream$/;

/** Stands between a client and a server, streams included, and loses what a network loses. */
export async function faultyProxy(t: Test, upstream: string): Promise<FaultyProxy> {
  const seen: Passed[] = [];
  const streams = new Set<ServerResponse>();
  let isLost: (passed: Omit<Passed, 'dropped'>) => boolean = () => false;

  const pass = (answer: IncomingMessage, incoming: IncomingMessage, response: ServerResponse): void => {
    const { method = 'GET', url = '/', headers } = incoming;
    const path = new URL(url, upstream).pathname;
    const passed = { method, path, retryCount: headers['x-stainless-retry-count']?.toString() };
    const status = answer.statusCode ?? 0;
    const dropped = isLost({ ...passed, status });
    seen.push({ ...passed, status, dropped });
    if (dropped) {
      answer.resume().once('end', () => response.destroy());
      return;
    }
    const { connection: _, 'transfer-encoding': __, ...kept } = answer.headers;
    response.writeHead(status, kept);
    response.flushHeaders();
    if (STREAM.test(path) && status === 200) streams.add(response);
    answer.on('error', () => response.destroy());
    answer.pipe(response);
  };

  const server = createServer((incoming, response) => {
    const { connection: _, ...headers } = incoming.headers;
    const outgoing = request(`${upstream}${incoming.url}`, { method: incoming.method, headers, agent: false });
    outgoing.once('response', (answer) => pass(answer, incoming, response));
    outgoing.on('error', () => response.destroy());
    response.on('error', () => {});
    response.once('close', () => {
      streams.delete(response);
      outgoing.destroy();
    });
    incoming.pipe(outgoing);
  });
  const port = await listenOnLoopback(t, server);
  return {
    url: `http://127.0.0.1:${port}`,
    seen,
    dropWhere(decides) {
      isLost = decides;
    },
    cutStreams() {
      const open = [...streams];
      for (const response of open) response.destroy();
      return open.length;
    },
    openStreams: () => streams.size,
  };
}
