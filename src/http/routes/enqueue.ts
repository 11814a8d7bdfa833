import { activeTraceContext, parseTraceContext } from '../../telemetry/trace-context.ts';
import { EnqueueBody } from '../../wire/control.ts';
import { Component, EnvironmentParams } from '../../wire/primitives.ts';
import { toWork, Work } from '../../wire/work.ts';
import type { App, AppOptions } from '../app.ts';
import { responses } from './responses.ts';

export function enqueueRoute(app: App, { queue }: AppOptions): void {
  app.route({
    method: 'POST',
    url: '/control/v1/environments/:environment_id/work',
    config: { access: 'operator' },
    schema: {
      operationId: 'enqueueWork',
      summary: 'Enqueue work for a session',
      description: 'Idempotent while live: a queued, starting or active item of the session covers the request.',
      tags: ['control'],
      params: EnvironmentParams,
      body: EnqueueBody,
      response: responses(
        {
          200: { ...Component(Work), description: 'A live item covers the session already' },
          201: { ...Component(Work), description: 'Created' },
        },
        ...([400, 401, 403, 404, 413] as const),
      ),
    },
    async handler({ params, body, headers }, reply) {
      const traceContext = activeTraceContext() ?? parseTraceContext(headers.traceparent, headers.tracestate);
      const { created, item } = await queue.enqueue({
        environmentId: params.environment_id,
        sessionId: body.data.id,
        ...(body.metadata === undefined ? {} : { metadata: body.metadata }),
        ...(traceContext === undefined ? {} : { traceContext }),
      });
      return reply.code(created ? 201 : 200).send(toWork(item));
    },
  });
}
