import { Component, WorkParams } from '../../wire/primitives.ts';
import { toWork, Work } from '../../wire/work.ts';
import type { App, AppOptions } from '../app.ts';
import { responses } from './responses.ts';

export function retrieveRoute(app: App, { queue }: AppOptions): void {
  app.route({
    method: 'GET',
    url: '/v1/environments/:environment_id/work/:work_id',
    config: { access: 'environment' },
    schema: {
      operationId: 'retrieveWork',
      summary: 'Read a work item',
      tags: ['work'],
      params: WorkParams,
      response: responses({ 200: Component(Work) }, 401, 403, 404),
    },
    async handler({ params }) {
      return toWork(await queue.retrieve({ environmentId: params.environment_id, id: params.work_id }));
    },
  });
}
