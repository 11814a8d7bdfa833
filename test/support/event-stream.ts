import { Agent, type IncomingMessage, request } from 'node:http';
import type { Test } from 'tap';
import { OPERATOR_KEY } from './harness.ts';
import type { Event } from './agent-side.ts';

export type EventStream = {
  readonly status: number;
  readonly headers: IncomingMessage['headers'];
  /** Whatever came that is no frame of a stream: the body of a refusal, or what is left of a frame. */
  rest(): string;
  /** Frames as they came: the type of the event line, and the data. */
  readonly frames: { readonly type: string; readonly data: Event }[];
  /** All but pings, which are events of sessions' streams and comments of others. */
  events(): Event[];
  /** `ended`: the answer is complete; `broken`: its connection went before. */
  state(): 'open' | 'ended' | 'broken';
  /** From now on nothing is read, until `resume`. */
  pause(): void;
  resume(): void;
  leave(): void;
};

const FRAME = /^event: (\S+)\ndata: ([^\n]*)$/;

export type StreamOptions = { as?: string | null; headers?: Record<string, string> };

/** Attaches as a client does that speaks nothing but HTTP; answers once the headers have come. Left at the end of the test. */
export const openStream = (t: Test, url: string, sessionId: string, options: StreamOptions = {}) =>
  openStreamAt(t, `${url}/v1/sessions/${sessionId}/events/stream`, options);

/** The same for any stream. */
export function openStreamAt(
  t: Test,
  url: string,
  { as = OPERATOR_KEY, headers: more = {} }: StreamOptions = {},
): Promise<EventStream> {
  const { promise, resolve, reject } = Promise.withResolvers<EventStream>();
  const headers = { ...(as === null ? {} : { authorization: `Bearer ${as}` }), ...more };
  const agent = new Agent({ keepAlive: true }); // as the official clients: whoever is to close says so
  const outgoing = request(url, { headers, agent });
  t.teardown(() => {
    outgoing.destroy();
    agent.destroy();
  });
  outgoing.once('error', reject);
  outgoing.once('response', (response) => {
    outgoing.on('error', () => {});
    resolve(read(response));
  });
  outgoing.end();
  return promise;
}

function read(response: IncomingMessage): EventStream {
  const frames: { type: string; data: Event }[] = [];
  let parts: string[] = [];
  let state: 'open' | 'ended' | 'broken' = 'open';
  response.setEncoding('utf8').on('data', (chunk: string) => {
    parts.push(chunk);
    if (!chunk.includes('\n')) return; // a large event comes in many pieces
    const pieces = parts.join('').split('\n\n');
    parts = [pieces.pop() ?? ''];
    for (const comment of pieces) {
      const piece = comment.replace(/^: ping$/, 'event: ping\ndata: {"type":"ping"}');
      const [, type = `no frame: ${piece.slice(0, 200)}`, data = 'null'] = FRAME.exec(piece) ?? [];
      frames.push({ type, data: JSON.parse(data) });
    }
  });
  response.once('end', () => {
    state = 'ended';
  });
  response.on('error', () => {});
  response.once('close', () => {
    if (state === 'open') state = 'broken';
  });
  return {
    status: response.statusCode ?? 0,
    headers: response.headers,
    rest: () => parts.join(''),
    frames,
    events: () => frames.flatMap(({ type, data }) => (type === 'ping' ? [] : [data])),
    state: () => state,
    pause: () => void response.pause(),
    resume: () => void response.resume(),
    leave: () => void response.destroy(),
  };
}
