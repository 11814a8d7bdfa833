import { createServer, type IncomingMessage } from 'node:http';
import Anthropic from '@anthropic-ai/sdk';
import type { Test } from 'tap';
import { OPERATOR_KEY, type Server } from './harness.ts';
import { listenOnLoopback } from './loopback.ts';

export type Official = {
  /** With the operator's API key. */
  readonly client: Anthropic;
  /** With the environment's key, as the official workers call ack, heartbeat and stop. */
  readonly worker: Anthropic;
  /** `METHOD path` of each request sent, without its query; ids of work as they are. */
  readonly sent: string[];
};

/** The official client as a user would make it. A warning or an error that it logs fails the test. */
export function officialClient(t: Test, { url, environmentKey }: Server, baseURL = url): Official {
  const log = (...what: unknown[]) => void t.fail('the client complains', { what });
  const ignore = () => {};
  process.on('warning', log);
  t.teardown(() => process.off('warning', log));
  const sent: string[] = [];
  const client = new Anthropic({
    baseURL,
    apiKey: OPERATOR_KEY,
    authToken: null,
    logLevel: 'warn',
    logger: { error: log, warn: log, info: ignore, debug: ignore },
    fetch(input, init) {
      const { pathname } = new URL(input instanceof Request ? input.url : input);
      sent.push(`${init?.method?.toUpperCase() ?? 'GET'} ${pathname}`);
      return fetch(input, init);
    },
  });
  return { client, worker: client.withOptions({ apiKey: null, authToken: environmentKey }), sent };
}

export type LossyProxy = {
  readonly url: string;
  /** Lets the next request to such a path be applied, and cuts its connection instead of answering. */
  drop(path: RegExp): void;
  /** Each request that came through to such a path: its mark of a retry, and the answer or what became of it. */
  readonly seen: { path: string; retryCount: string | undefined; dropped: boolean; status: number }[];
};

/** A proxy whose answers get lost on demand: what a client meets when the network breaks after its request was applied. */
export async function lossyProxy(t: Test, upstream: string): Promise<LossyProxy> {
  const drops: RegExp[] = [];
  const seen: LossyProxy['seen'] = [];
  const server = createServer(async (request, response) => {
    const { method = 'GET', url = '/', headers } = request;
    const answer = await fetch(`${upstream}${url}`, {
      method,
      headers: passedOn(headers),
      ...(method === 'GET' ? {} : { body: await textOf(request) }),
    });
    const body = await answer.text();
    const at = drops.findIndex((path) => path.test(url));
    if (at >= 0) drops.splice(at, 1);
    const retryCount = headers['x-stainless-retry-count'];
    seen.push({ path: url, retryCount: retryCount?.toString(), dropped: at >= 0, status: answer.status });
    if (at >= 0) response.socket?.destroy();
    else response.writeHead(answer.status, Object.fromEntries(answer.headers)).end(body);
  });
  const port = await listenOnLoopback(t, server);
  return { url: `http://127.0.0.1:${port}`, drop: (path) => void drops.push(path), seen };
}

const HOP_BY_HOP = ['connection', 'host', 'content-length', 'transfer-encoding', 'accept-encoding'];

const passedOn = (headers: IncomingMessage['headers']): Record<string, string> =>
  Object.fromEntries(
    Object.entries(headers).flatMap(([name, value]) =>
      value === undefined || HOP_BY_HOP.includes(name) ? [] : [[name, value.toString()]],
    ),
  );

async function textOf(request: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk);
  return Buffer.concat(chunks).toString();
}
