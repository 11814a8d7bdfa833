import { deleteSession } from '../../sessions/end.ts';
import { sessionTopic } from '../../sessions/session.ts';
import { SessionDeleted, SessionParams } from '../../wire/sessions.ts';
import type { App, RouteOptions } from '../app.ts';
import { change } from '../changes.ts';
import { responses } from './responses.ts';

export function deleteSessionRoute(app: App, { database, queue }: RouteOptions): void {
  app.route({
    method: 'DELETE',
    url: '/v1/sessions/:session_id',
    config: { access: 'operator' },
    schema: {
      operationId: 'deleteSession',
      summary: 'Remove a session with its events',
      description: 'Its work is cancelled.',
      tags: ['sessions'],
      params: SessionParams,
      response: responses({ 200: SessionDeleted }, 401, 403, 404),
    },
    async handler(request) {
      const { session_id: id } = request.params;
      const { body } = await change(database, request, async (bound) => {
        await deleteSession(bound, id);
        return { status: 200, body: { id, type: 'session_deleted' as const } };
      });
      queue.wake(sessionTopic(id));
      return body;
    },
  });
}
