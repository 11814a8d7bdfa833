import { retrieveSession } from '../../sessions/read.ts';
import { Component } from '../../wire/primitives.ts';
import { Session, SessionParams, toSessionObject } from '../../wire/sessions.ts';
import type { App, RouteOptions } from '../app.ts';
import { responses } from './responses.ts';

export function retrieveSessionRoute(app: App, { database }: RouteOptions): void {
  app.route({
    method: 'GET',
    url: '/v1/sessions/:session_id',
    config: { access: 'session' },
    schema: {
      operationId: 'retrieveSession',
      summary: 'Read a session',
      tags: ['sessions'],
      params: SessionParams,
      response: responses({ 200: Component(Session) }, 401, 403, 404),
    },
    async handler({ params }) {
      return toSessionObject(await retrieveSession(database, params.session_id));
    },
  });
}
