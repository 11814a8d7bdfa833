import { WorkParams } from '../../wire/primitives.ts';
import { HeartbeatQuery, WorkHeartbeat } from '../../wire/work.ts';
import type { App, AppOptions } from '../app.ts';
import { responses } from './responses.ts';

export function heartbeatRoute(app: App, { queue }: AppOptions): void {
  app.route({
    method: 'POST',
    url: '/v1/environments/:environment_id/work/:work_id/heartbeat',
    config: { access: 'item', refusals: { 412: 'heartbeat' } },
    schema: {
      operationId: 'heartbeatWork',
      summary: 'Keep the lease of a work item',
      description:
        'Compares the token byte for byte and answers the next one. A request marked `x-stainless-retry-count: 1` or `2` ' +
        'whose beat was applied before is answered with the current token.',
      tags: ['work'],
      params: WorkParams,
      querystring: HeartbeatQuery,
      response: responses({ 200: WorkHeartbeat }, 400, 401, 403, 404, 412, 413),
    },
    async handler({ params, query, headers }) {
      const beat = await queue.heartbeatOne({
        environmentId: params.environment_id,
        id: params.work_id,
        expectedLastHeartbeat: query.expected_last_heartbeat,
        desiredTtlSeconds: query.desired_ttl_seconds,
        isRetry: isMarkedRetry(headers['x-stainless-retry-count']),
      });
      return {
        type: 'work_heartbeat' as const,
        last_heartbeat: beat.lastHeartbeat,
        lease_extended: beat.leaseExtended,
        state: beat.state,
        ttl_seconds: beat.ttlSeconds,
      };
    },
  });
}

/** The only marks of a retry that the official clients send (contract §5). */
const isMarkedRetry = (header: unknown): boolean => typeof header === 'string' && /^[12]$/.test(header);
