import { updateSession } from '../../sessions/update.ts';
import { Component } from '../../wire/primitives.ts';
import { Session, SessionChangeBody, SessionParams, toSessionObject } from '../../wire/sessions.ts';
import type { App, RouteOptions } from '../app.ts';
import { change } from '../changes.ts';
import { responses } from './responses.ts';

export function updateSessionRoute(app: App, { database }: RouteOptions): void {
  app.route({
    method: 'POST',
    url: '/v1/sessions/:session_id',
    config: { access: 'operator' },
    schema: {
      operationId: 'updateSession',
      summary: "Change a session's title and metadata",
      tags: ['sessions'],
      params: SessionParams,
      body: SessionChangeBody,
      response: responses({ 200: Component(Session) }, 400, 401, 403, 404, 413),
    },
    async handler(request) {
      const { title, metadata } = request.body;
      const { body } = await change(database, request, async (bound) => {
        const session = await updateSession(bound, request.params.session_id, {
          title,
          metadata: metadata ?? undefined,
        });
        return { status: 200, body: toSessionObject(session) };
      });
      return body;
    },
  });
}
