import type { FastifyReply, FastifyRequest } from 'fastify';
import { Type } from 'typebox';
import { type Attached, PING, type Sink } from '../../sessions/streams.ts';
import { SessionParams } from '../../wire/sessions.ts';
import type { App, RouteOptions } from '../app.ts';
import { authorise } from '../auth.ts';
import { HttpError } from '../errors.ts';
import { responses } from './responses.ts';

const EventStream = {
  description: 'Server-sent events: each frame has an `event:` line with the type of the event in its `data:`',
  content: { 'text/event-stream': { schema: Type.String() } },
};

export function streamEventsRoute(app: App, { streams, callers }: RouteOptions): void {
  app.route({
    method: 'GET',
    url: '/v1/sessions/:session_id/events/stream',
    config: { access: 'session' },
    schema: {
      operationId: 'streamSessionEvents',
      summary: 'Stream the events of a session',
      description:
        'From now on: attach first, then list what was before; an event may be in both. A ping every 15 s. Ends with the session, when ' +
        'its credential is revoked, and when the server shuts down: come back. A client that reads nothing for two minutes is cut off.',
      tags: ['sessions'],
      params: SessionParams,
      response: responses({ 200: EventStream as never }, 401, 403, 404),
    },
    async handler(request, reply) {
      const isAllowed = () =>
        authorise(request, 'session', callers).then(
          () => true,
          (error) => {
            if (error instanceof HttpError) return false;
            throw error;
          },
        );
      let attached: Attached | undefined;
      let isGone = false;
      reply.raw.once('close', () => {
        isGone = true;
        attached?.detach();
      });
      reply.raw.on('drain', () => attached?.onDrained());
      attached = await streams.attach(request.params.session_id, () => open(request, reply, isAllowed));
      if (isGone) attached?.detach();
      return reply;
    },
  });
}

/** The answer begins: from here on it is not Fastify's. */
function open({ raw: { socket } }: FastifyRequest, reply: FastifyReply, isAllowed: Sink['isAllowed']): Sink {
  reply.hijack();
  socket.setNoDelay(true);
  reply.raw.writeHead(200, {
    ...(reply.getHeaders() as Record<string, string>),
    'content-type': 'text/event-stream; charset=utf-8',
    'x-accel-buffering': 'no', // some fronts would keep frames back
    connection: 'close', // nothing comes after a stream, and a shutdown does not wait for its connection
  });
  reply.raw.write(PING);
  return {
    write: (frame) => reply.raw.write(frame),
    end: () => void reply.raw.end(),
    cut: () => void reply.raw.destroy(),
    isAllowed,
  };
}
