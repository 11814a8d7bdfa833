import { cancelSession } from '../../queue/cancel-session.ts';
import { CancelBody, Cancelled } from '../../wire/enqueue.ts';
import { ChangeHeaders, EnvironmentParams } from '../../wire/primitives.ts';
import { toWork } from '../../wire/work.ts';
import type { App, AppOptions } from '../app.ts';
import { change } from '../changes.ts';
import { responses } from './responses.ts';

export function cancelSessionRoute(app: App, { database, queue }: AppOptions): void {
  app.route({
    method: 'POST',
    url: '/control/v1/environments/:environment_id/work/cancel',
    config: { access: 'operator' },
    schema: {
      operationId: 'cancelSession',
      summary: 'Stop all unfinished work of a session at once, of every kind',
      description: 'Its follow-ups are dropped. A worker that holds an item learns of it by its next heartbeat.',
      tags: ['control'],
      params: EnvironmentParams,
      headers: ChangeHeaders,
      body: CancelBody,
      response: responses({ 200: Cancelled }, 400, 401, 403, 404, 409, 413),
    },
    async handler(request) {
      const { environment_id: environmentId } = request.params;
      const sessionId = request.body.data.id;
      const { body } = await change(database, request, async (bound) => {
        const items = await cancelSession(bound, environmentId, sessionId);
        return { status: 200, body: { data: items.map((item) => toWork(item)) }, target: sessionId };
      });
      for (const { id: workId, acknowledged_at: heldSince } of body.data) {
        if (heldSince !== null) queue.hint(environmentId, { type: 'stop_requested', workId });
      }
      return body;
    },
  });
}
