import { Type } from 'typebox';
import { only } from '../../queue/errors.ts';
import { stop } from '../../queue/stop.ts';
import { WorkParams } from '../../wire/primitives.ts';
import { StopBody } from '../../wire/work.ts';
import type { App, AppOptions } from '../app.ts';
import { change } from '../changes.ts';
import { responses } from './responses.ts';

export function stopRoute(app: App, { database, queue }: AppOptions): void {
  app.route({
    method: 'POST',
    url: '/v1/environments/:environment_id/work/:work_id/stop',
    config: { access: 'item' },
    schema: {
      operationId: 'stopWork',
      summary: 'Stop a work item',
      description:
        'An active item winds down under its lease and reads `stopping`; any other, or `force`, ends at once.',
      tags: ['work'],
      params: WorkParams,
      body: StopBody,
      response: responses({ 204: Type.Null({ description: 'Stopped or stopping' }) }, 400, 401, 403, 404, 409, 413),
    },
    async handler(request, reply) {
      const { params, body, caller } = request;
      const ref = { environmentId: params.environment_id, id: params.work_id, force: body?.force ?? false };
      if (caller?.kind === 'api') {
        const { body: stopped } = await change(database, request, async (bound) => ({
          status: 204,
          body: only(await stop(bound, [{ ...ref, reason: 'operator' }])),
        }));
        if (typeof stopped === 'object' && stopped.isFollowed) queue.wake(params.environment_id);
        if (typeof stopped === 'object') queue.hint(params.environment_id, { type: 'stop_requested', workId: ref.id });
      } else {
        await queue.stopOne({ ...ref, reason: 'worker' });
      }
      return reply.code(204).send(null);
    },
  });
}
