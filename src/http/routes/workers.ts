import { toWorkers, Workers } from '../../wire/operations.ts';
import { EnvironmentParams } from '../../wire/primitives.ts';
import type { App, AppOptions } from '../app.ts';
import { responses } from './responses.ts';

export function workersRoute(app: App, { queue }: AppOptions): void {
  app.route({
    method: 'GET',
    url: '/control/v1/environments/:environment_id/workers',
    config: { access: 'operator' },
    schema: {
      operationId: 'listWorkers',
      summary: 'Who polls, and who holds what',
      description:
        'Workers that polled within the hour or hold an item now. Those that send no Anthropic-Worker-ID are not told.',
      tags: ['control'],
      params: EnvironmentParams,
      response: responses({ 200: Workers }, 401, 403, 404),
    },
    async handler({ params }) {
      return toWorkers(await queue.workers(params.environment_id));
    },
  });
}
