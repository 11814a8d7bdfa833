import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { Test } from 'tap';
import { type Server, type ServerOptions, testServer } from './harness.ts';
import { listenOnLoopback } from './loopback.ts';

/** A request as it arrived: header names as sent, in lower case; the body grows while it comes. */
export type Arrived = {
  readonly method: string;
  readonly url: string;
  readonly headers: Readonly<Record<string, string[] | undefined>>;
  body(): Buffer;
  /** The whole body is there. */
  isComplete(): boolean;
  /** The connection of this request is gone, or its answer is sent. */
  isOver(): boolean;
};

type Answering = (response: ServerResponse, request: IncomingMessage) => void;

export type Application = {
  readonly url: string;
  readonly arrived: Arrived[];
  /** How many connections are open to it. */
  connectionCount(): number;
  /** How it answers from now on; an empty object until told. */
  answer(answering: Answering): void;
};

/** An application that owns sessions: records what it is asked. Listens until the test ends. */
export async function application(t: Test): Promise<Application> {
  const arrived: Arrived[] = [];
  let answering: Answering = (response, request) => {
    const headers = { 'content-type': 'application/json', 'content-length': 2 };
    request.on('end', () => response.writeHead(200, headers).end('{}')).resume();
  };
  const server = createServer((request, response) => {
    const { method = '', url = '', headersDistinct: headers } = request;
    const chunks: Buffer[] = [];
    let isOver = false;
    request.on('data', (chunk) => chunks.push(chunk));
    request.on('error', () => {});
    response.on('close', () => {
      isOver = true;
    });
    const body = () => Buffer.concat(chunks);
    arrived.push({ method, url, headers, body, isComplete: () => request.complete, isOver: () => isOver });
    answering(response, request);
  });
  let connectionCount = 0;
  server.on('connection', (socket) => {
    connectionCount++;
    socket.on('close', () => connectionCount--);
  });
  const port = await listenOnLoopback(t, server);
  return {
    url: `http://127.0.0.1:${port}`,
    arrived,
    connectionCount: () => connectionCount,
    answer(next) {
      answering = next;
    },
  };
}

export type Upstream = Server & {
  readonly application: Application;
  /** The last request that arrived there. */
  last(): Arrived;
  /** The sessions token of a new hand-out, and its work id. */
  handOut(sessionId: string): Promise<{ token: string; workId: string }>;
};

/** A server whose sessions an application owns. */
export async function upstreamServer(
  t: Test,
  { basePath = '', ...options }: ServerOptions & { basePath?: string } = {},
): Promise<Upstream> {
  const owner = await application(t);
  const server = await testServer(t, { ...options, sessionsUpstreamUrl: owner.url + basePath });
  return {
    ...server,
    application: owner,
    last() {
      const last = owner.arrived.at(-1);
      if (last === undefined) throw new Error('nothing arrived');
      return last;
    },
    async handOut(sessionId) {
      await server.enqueue(sessionId);
      const { json } = await server.call('GET', server.work('/poll'));
      const { sessions_token: token } = JSON.parse(Buffer.from(json.secret, 'base64url').toString());
      return { token, workId: json.id };
    },
  };
}

/** The headers that tell of the caller, by their names after `leasehold-`. */
export const vouchedIn = ({ headers }: Arrived): Record<string, string[] | undefined> =>
  Object.fromEntries(
    Object.entries(headers).flatMap(([name, value]) =>
      /^leasehold/.test(name) ? [[name.replace('leasehold-', ''), value]] : [],
    ),
  );
