import { Type } from 'typebox';
import { LIMITS } from '../../queue/limits.ts';
import { listEvents } from '../../sessions/read-events.ts';
import { Component, Nullable } from '../../wire/primitives.ts';
import { EventsQuery, SessionEvent } from '../../wire/session-events.ts';
import { SessionParams } from '../../wire/sessions.ts';
import { toBetween } from '../../wire/sessions-query.ts';
import type { App, RouteOptions } from '../app.ts';
import { responses } from './responses.ts';

const EventsPage = Type.Object({
  data: Type.Array(Component(SessionEvent)),
  next_page: Nullable<string>(Type.String({ description: 'For the parameter page; null on the last page' })),
});

export function listEventsRoute(app: App, { database }: RouteOptions): void {
  app.route({
    method: 'GET',
    url: '/v1/sessions/:session_id/events',
    config: { access: 'session' },
    schema: {
      operationId: 'listSessionEvents',
      summary: 'List the events of a session, oldest first',
      tags: ['sessions'],
      params: SessionParams,
      querystring: EventsQuery,
      response: responses({ 200: EventsPage }, 400, 401, 403, 404),
    },
    async handler({ params, query }, reply) {
      const types = [...(query['types[]'] ?? []), ...(query.types ?? [])];
      const { events, nextPage } = await listEvents(database, params.session_id, {
        limit: query.limit ?? LIMITS.pageItemsDefault,
        page: query.page,
        order: query.order,
        types: types.length === 0 ? undefined : types,
        processed: toBetween(query),
      });
      // Events are JSON already: as they are stored, not read and written once more.
      const text = `{"data":[${events.join(',')}],"next_page":${JSON.stringify(nextPage)}}`;
      return reply
        .type('application/json; charset=utf-8')
        .serializer(String)
        .send(text as never);
    },
  });
}
