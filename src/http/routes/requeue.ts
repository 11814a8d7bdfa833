import type { Offered } from '../../queue/items.ts';
import { requeueSetAside } from '../../queue/requeue.ts';
import { toWorkDetails, WorkDetails } from '../../wire/operations.ts';
import { ChangeHeaders, Component, WorkParams } from '../../wire/primitives.ts';
import type { App, AppOptions } from '../app.ts';
import { change } from '../changes.ts';
import { responses } from './responses.ts';

export function requeueRoute(app: App, { database, queue }: AppOptions): void {
  app.route({
    method: 'POST',
    url: '/control/v1/environments/:environment_id/work/:work_id/requeue',
    config: { access: 'operator' },
    schema: {
      operationId: 'requeueWork',
      summary: 'Put back what was set aside',
      description: 'As a new item that names the old one in requeued_from; the old one stays as it is.',
      tags: ['control'],
      params: WorkParams,
      headers: ChangeHeaders,
      response: responses({ 201: Component(WorkDetails) }, 400, 401, 403, 404, 409, 413),
    },
    async handler(request, reply) {
      const { environment_id: environmentId, work_id: id } = request.params;
      let offered: Offered[] = [];
      const { body } = await change(database, request, async (bound) => {
        const made = await requeueSetAside(bound, { environmentId, id });
        offered = [made];
        return { status: 201, body: toWorkDetails(made) };
      });
      queue.announce(offered);
      return reply.code(201).send(body);
    },
  });
}
