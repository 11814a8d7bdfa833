import { deleteEnvironment } from '../../control/change-environment.ts';
import { EnvironmentDeleted } from '../../wire/control.ts';
import { EnvironmentParams } from '../../wire/primitives.ts';
import type { App, AppOptions } from '../app.ts';
import { change } from '../changes.ts';
import { responses } from './responses.ts';

export function deleteEnvironmentRoute(app: App, { database, queue }: AppOptions): void {
  app.route({
    method: 'DELETE',
    url: '/v1/environments/:environment_id',
    config: { access: 'operator' },
    schema: {
      operationId: 'deleteEnvironment',
      summary: 'Delete an environment, its keys and its finished work',
      tags: ['environments'],
      params: EnvironmentParams,
      response: responses({ 200: EnvironmentDeleted }, 401, 403, 404, 409, 413),
    },
    async handler(request) {
      const { environment_id: id } = request.params;
      const { body } = await change(database, request, async (bound) => {
        await deleteEnvironment(bound, id);
        return { status: 200, body: { id, type: 'environment_deleted' as const } };
      });
      queue.hint(id, { type: 'environment_deleted' });
      return body;
    },
  });
}
