import { LIMITS } from '../../queue/limits.ts';
import { EnvironmentParams } from '../../wire/primitives.ts';
import { ListQuery, toWork, WorkPage } from '../../wire/work.ts';
import type { App, AppOptions } from '../app.ts';
import { responses } from './responses.ts';

export function listRoute(app: App, { queue }: AppOptions): void {
  app.route({
    method: 'GET',
    url: '/v1/environments/:environment_id/work',
    config: { access: 'environment' },
    schema: {
      operationId: 'listWork',
      summary: 'List work items, newest first',
      tags: ['work'],
      params: EnvironmentParams,
      querystring: ListQuery,
      response: responses({ 200: WorkPage }, 400, 401, 403, 404),
    },
    async handler({ params, query }) {
      const { limit = LIMITS.pageItemsDefault, page } = query;
      const { items, nextPage } = await queue.list(params.environment_id, { limit, page });
      return { data: items.map((item) => toWork(item)), next_page: nextPage };
    },
  });
}
