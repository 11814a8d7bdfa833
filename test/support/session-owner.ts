import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Application } from './application.ts';

type Event = { readonly type: string; readonly [field: string]: unknown };

export type SessionOwner = {
  /** What workers posted, in order. */
  readonly posted: Event[];
  /** Appends an event, and sends it to who is attached. */
  append(event: Event): void;
  readonly attachedCount: () => number;
};

/** Makes the application the owner of one session, as far as the official worker asks: retrieve, events, stream, append. */
export function ownSession(application: Application, sessionId: string): SessionOwner {
  const events: Event[] = [];
  const posted: Event[] = [];
  const attached = new Set<ServerResponse>();
  let made = 0;
  const append = (event: Event): Event => {
    const stored = { id: `sevt_${++made}`, processed_at: new Date().toISOString(), ...event };
    events.push(stored);
    for (const stream of attached) stream.write(`event: ${event.type}\ndata: ${JSON.stringify(stored)}\n\n`);
    return stored;
  };
  const base = `/v1/sessions/${sessionId}`;
  const routes: Record<string, (response: ServerResponse, body: { events: Event[] }) => void> = {
    [`GET ${base}`]: (response) => json(response, sessionOf(sessionId)),
    [`GET ${base}/events`]: (response) => json(response, { data: events, next_page: null }),
    [`GET ${base}/events/stream`](response) {
      response.writeHead(200, { 'content-type': 'text/event-stream' }).flushHeaders();
      attached.add(response);
      response.on('close', () => attached.delete(response));
    },
    [`POST ${base}/events`](response, body) {
      posted.push(...body.events);
      json(response, { data: body.events.map(append) });
    },
  };
  application.answer(async (response, request) => {
    const route = routes[`${request.method} ${request.url?.split('?')[0]}`];
    if (route === undefined) return void response.writeHead(404).end();
    route(response, request.method === 'POST' ? JSON.parse(await textOf(request)) : { events: [] });
  });
  return { posted, append: (event) => void append(event), attachedCount: () => attached.size };
}

const sessionOf = (id: string) => ({
  id,
  type: 'session',
  status: 'running',
  resources: [],
  agent: { id: 'agent_1', type: 'agent', skills: [], tools: [] },
});

const json = (response: ServerResponse, value: unknown) =>
  void response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(value));

async function textOf(request: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk);
  return Buffer.concat(chunks).toString();
}
