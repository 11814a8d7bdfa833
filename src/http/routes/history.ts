import { history } from '../../queue/history.ts';
import { toWorkHistory, WorkHistory } from '../../wire/operations.ts';
import { WorkParams } from '../../wire/primitives.ts';
import type { App, AppOptions } from '../app.ts';
import { responses } from './responses.ts';

export function historyRoute(app: App, { database }: AppOptions): void {
  app.route({
    method: 'GET',
    url: '/control/v1/environments/:environment_id/work/:work_id/history',
    config: { access: 'operator' },
    schema: {
      operationId: 'workHistory',
      summary: 'What became of an item, by any id that it ever had',
      description: 'The item as it is now, and each time that it was given to a worker, oldest first.',
      tags: ['control'],
      params: WorkParams,
      response: responses({ 200: WorkHistory }, 401, 403, 404),
    },
    async handler({ params }) {
      return toWorkHistory(await history(database, { environmentId: params.environment_id, id: params.work_id }));
    },
  });
}
