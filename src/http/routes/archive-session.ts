import { archiveSession } from '../../sessions/end.ts';
import { sessionTopic } from '../../sessions/session.ts';
import { Component } from '../../wire/primitives.ts';
import { Session, SessionParams, toSessionObject } from '../../wire/sessions.ts';
import type { App, RouteOptions } from '../app.ts';
import { change } from '../changes.ts';
import { responses } from './responses.ts';

export function archiveSessionRoute(app: App, { database, queue }: RouteOptions): void {
  app.route({
    method: 'POST',
    url: '/v1/sessions/:session_id/archive',
    config: { access: 'operator' },
    schema: {
      operationId: 'archiveSession',
      summary: 'End a session for good',
      description: 'It reads terminated, takes no more events, and its work is cancelled. Once more changes nothing.',
      tags: ['sessions'],
      params: SessionParams,
      response: responses({ 200: Component(Session) }, 401, 403, 404),
    },
    async handler(request) {
      const { session_id: id } = request.params;
      const { body } = await change(database, request, async (bound) => {
        return { status: 200, body: toSessionObject(await archiveSession(bound, id)) };
      });
      queue.wake(sessionTopic(id));
      return body;
    },
  });
}
