import { enqueue } from '../../queue/enqueue.ts';
import { activeTraceContext, parseTraceContext } from '../../telemetry/trace-context.ts';
import { EnqueueBody } from '../../wire/control.ts';
import { ChangeHeaders, Component, EnvironmentParams } from '../../wire/primitives.ts';
import { toWork, Work } from '../../wire/work.ts';
import type { App, AppOptions } from '../app.ts';
import { change } from '../changes.ts';
import { responses } from './responses.ts';

export function enqueueRoute(app: App, { database, queue }: AppOptions): void {
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
      headers: ChangeHeaders,
      body: EnqueueBody,
      response: responses(
        {
          200: { ...Component(Work), description: 'A live item covers the session already' },
          201: { ...Component(Work), description: 'Created' },
        },
        ...([400, 401, 403, 404, 409, 413] as const),
      ),
    },
    async handler(request, reply) {
      const { params, body: asked, headers } = request;
      const traceContext = activeTraceContext() ?? parseTraceContext(headers.traceparent, headers.tracestate);
      const { status, body } = await change(database, request, async (bound) => {
        const { created, item } = await enqueue(bound, {
          environmentId: params.environment_id,
          sessionId: asked.data.id,
          ...(asked.metadata === undefined ? {} : { metadata: asked.metadata }),
          ...(traceContext === undefined ? {} : { traceContext }),
        });
        return { status: created ? 201 : 200, body: toWork(item), target: item.id };
      });
      if (status === 201) queue.wake(params.environment_id);
      return reply.code(status === 201 ? 201 : 200).send(body);
    },
  });
}
