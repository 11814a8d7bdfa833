import { readAssignment } from '../../queue/assignment.ts';
import { toWorkInput, WorkInput } from '../../wire/enqueue.ts';
import { WorkParams } from '../../wire/primitives.ts';
import type { App, AppOptions } from '../app.ts';
import { responses } from './responses.ts';

export function inputRoute(app: App, { database, queue }: AppOptions): void {
  app.route({
    method: 'GET',
    url: '/control/v1/environments/:environment_id/work/:work_id/input',
    config: { access: 'holder' },
    schema: {
      operationId: 'readWorkInput',
      summary: 'The input that an item was enqueued with, and what else its worker needs to know',
      description: "With an API key or the item's own sessions token.",
      tags: ['control'],
      params: WorkParams,
      response: responses({ 200: WorkInput }, 401, 403, 404),
    },
    async handler({ params }) {
      const ref = { environmentId: params.environment_id, id: params.work_id };
      return toWorkInput(await readAssignment(database, ref, queue.settings));
    },
  });
}
