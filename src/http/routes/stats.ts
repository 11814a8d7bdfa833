import { LRUCache } from 'lru-cache';
import type { QueueStats } from '../../queue/stats.ts';
import { EnvironmentParams } from '../../wire/primitives.ts';
import { WorkQueueStats } from '../../wire/work.ts';
import type { App, AppOptions } from '../app.ts';
import { responses } from './responses.ts';

const KEPT_MS_DEFAULT = 1_000;
const ENVIRONMENTS_KEPT_MAX = 10_000;

/** Figures of one environment are read once for all who ask within a second: autoscalers ask often, and reading counts what is live. */
function keepStats({
  queue,
  statsKeptMs = KEPT_MS_DEFAULT,
}: AppOptions): (environmentId: string) => Promise<QueueStats> {
  if (statsKeptMs === 0) return queue.stats;
  const kept = new LRUCache<string, Promise<QueueStats>>({ max: ENVIRONMENTS_KEPT_MAX, ttl: statsKeptMs });
  return (environmentId) => {
    const known = kept.get(environmentId);
    if (known !== undefined) return known;
    const reading = queue.stats(environmentId);
    kept.set(environmentId, reading);
    reading.catch(() => kept.delete(environmentId));
    return reading;
  };
}

export function statsRoute(app: App, options: AppOptions): void {
  const statsOf = keepStats(options);
  app.route({
    method: 'GET',
    url: '/v1/environments/:environment_id/work/stats',
    config: { access: 'environment' },
    schema: {
      operationId: 'workStats',
      summary: 'Depth, pending and polling workers',
      description: 'Of at most a second ago.',
      tags: ['work'],
      params: EnvironmentParams,
      response: responses({ 200: WorkQueueStats }, 401, 403, 404),
    },
    async handler({ params }) {
      const { depth, pending, oldestQueuedAt, workersPolling } = await statsOf(params.environment_id);
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
