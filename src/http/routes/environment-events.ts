import { retrieveEnvironment } from '../../control/environments.ts';
import { issueTicket } from '../../control/stream-tickets.ts';
import { EventsTicketQuery, StreamTicket, toStreamTicket } from '../../wire/environment-events.ts';
import { EnvironmentParams } from '../../wire/primitives.ts';
import type { App, RouteOptions } from '../app.ts';
import { forbidden } from '../auth.ts';
import { allowPreflight } from '../cors.ts';
import { EventStream, openSink } from '../event-stream.ts';
import { responses } from './responses.ts';

const EVENTS = '/control/v1/environments/:environment_id/events';

export function environmentEventsRoutes(app: App, options: RouteOptions): void {
  const { database, callers, wakeStreams } = options;
  allowPreflight(app, EVENTS, options.corsOrigins);

  app.route({
    method: 'GET',
    url: EVENTS,
    config: { access: 'member', takesTickets: true, isCrossOrigin: true },
    schema: {
      operationId: 'openEvents',
      summary: "Be told of an environment's events as they happen",
      description:
        'Hints: `work_available` (at once, and at most ten a second), `stop_requested` with `work_id`, `lock_released` with `name`, ' +
        '`environment_paused`, `environment_resumed`, `hints_missed` (what happened on other servers may not have been told). Any of them may be lost or come twice: go on polling, seldom. To a key with ' +
        '`min_queued_age_ms` work is told of that much later. A comment every 15 s. Ends when its credential is revoked or the environment deleted, and when the ' +
        'server shuts down: come back. A client that is 64 KiB or 30 s behind is cut off. Past 10,000 streams a process answers 503.',
      tags: ['control'],
      params: EnvironmentParams,
      querystring: EventsTicketQuery,
      response: responses({ 200: EventStream }, 400, 401, 403, 404),
    },
    async handler(request, reply) {
      const { params, caller } = request;
      let isGone = false;
      let detach = () => {};
      reply.raw.once('close', () => {
        isGone = true;
        detach();
      });
      const { id } = await retrieveEnvironment(database, params.environment_id);
      const minQueuedAgeMs = caller?.kind === 'environment' ? caller.minQueuedAgeMs : 0;
      detach = wakeStreams.attach(id, minQueuedAgeMs, () => openSink(request, reply, 'member', callers));
      if (isGone) detach();
      return reply;
    },
  });

  app.route({
    method: 'POST',
    url: `${EVENTS}/tickets`,
    config: { access: 'environment', changesNothing: true },
    schema: {
      operationId: 'issueEventsTicket',
      summary: "Issue a ticket for an environment's event stream",
      description:
        'For browsers, which send no headers with an EventSource: `…/events?ticket=…`. Opens streams of this environment for 60 s, as the key that it was ' +
        'issued with would; they end when that is revoked or expires. It is kept out of the audit log, and takes no Idempotency-Key: ask again.',
      tags: ['control'],
      params: EnvironmentParams,
      response: responses({ 201: StreamTicket }, 401, 403, 404),
    },
    async handler({ params, caller }, reply) {
      if (caller === undefined || caller.kind === 'session') throw forbidden();
      return reply.code(201).send(toStreamTicket(await issueTicket(database, params.environment_id, caller.keyHash)));
    },
  });
}
