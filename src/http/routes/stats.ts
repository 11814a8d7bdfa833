import { EnvironmentParams } from '../../wire/primitives.ts';
import { WorkQueueStats } from '../../wire/work.ts';
import type { App, AppOptions } from '../app.ts';
import { responses } from './responses.ts';

export function statsRoute(app: App, { queue }: AppOptions): void {
  app.route({
    method: 'GET',
    url: '/v1/environments/:environment_id/work/stats',
    config: { access: 'environment' },
    schema: {
      operationId: 'workStats',
      summary: 'Depth, pending and polling workers',
      tags: ['work'],
      params: EnvironmentParams,
      response: responses({ 200: WorkQueueStats }, 401, 403, 404),
    },
    async handler({ params }) {
      const { depth, pending, oldestQueuedAt, workersPolling } = await queue.stats(params.environment_id);
      return {
        type: 'work_queue_stats' as const,
        depth,
        pending,
        oldest_queued_at: oldestQueuedAt,
        workers_polling: workersPolling,
      };
    },
  });
}
