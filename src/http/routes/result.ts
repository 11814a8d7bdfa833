import { readResult } from '../../queue/input.ts';
import { WorkResult } from '../../wire/outcome.ts';
import { WorkParams } from '../../wire/primitives.ts';
import type { App, AppOptions } from '../app.ts';
import { responses } from './responses.ts';

export function resultRoute(app: App, { database }: AppOptions): void {
  app.route({
    method: 'GET',
    url: '/control/v1/environments/:environment_id/work/:work_id/result',
    config: { access: 'holder' },
    schema: {
      operationId: 'readWorkResult',
      summary: 'The result that an item was ended with',
      description: "With an API key or the item's own sessions token.",
      tags: ['control'],
      params: WorkParams,
      response: responses({ 200: WorkResult }, 401, 403, 404),
    },
    async handler({ params }) {
      return { result: await readResult(database, { environmentId: params.environment_id, id: params.work_id }) };
    },
  });
}
