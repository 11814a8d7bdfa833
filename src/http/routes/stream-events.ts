import { type Attached, PING } from '../../sessions/streams.ts';
import { SessionParams } from '../../wire/sessions.ts';
import type { App, RouteOptions } from '../app.ts';
import { EventStream, openSink } from '../event-stream.ts';
import { responses } from './responses.ts';

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
      response: responses({ 200: EventStream }, 401, 403, 404),
    },
    async handler(request, reply) {
      let attached: Attached | undefined;
      let isGone = false;
      reply.raw.once('close', () => {
        isGone = true;
        attached?.detach();
      });
      reply.raw.on('drain', () => attached?.onDrained());
      attached = await streams.attach(request.params.session_id, () => {
        const sink = openSink(request, reply, 'session', callers);
        sink.write(PING);
        return sink;
      });
      if (isGone) attached?.detach();
      return reply;
    },
  });
}
