import { listEnvironments } from '../../control/environments.ts';
import { LIMITS } from '../../queue/limits.ts';
import { EnvironmentPage, EnvironmentsQuery, toEnvironment } from '../../wire/control.ts';
import type { App, AppOptions } from '../app.ts';
import { responses } from './responses.ts';

export function listEnvironmentsRoute(app: App, { database }: AppOptions): void {
  app.route({
    method: 'GET',
    url: '/v1/environments',
    config: { access: 'operator' },
    schema: {
      operationId: 'listEnvironments',
      summary: 'List environments, newest first',
      description:
        'Each exactly once, also while others are made. Walked up to 10,000 environments: ten pages of 1,000.',
      tags: ['environments'],
      querystring: EnvironmentsQuery,
      response: responses({ 200: EnvironmentPage }, 400, 401, 403),
    },
    async handler({ query }) {
      const { limit = LIMITS.pageItemsDefault, page, include_archived: includeArchived = false } = query;
      const { items, nextPage } = await listEnvironments(database, { limit, page, includeArchived });
      return { data: items.map(toEnvironment), next_page: nextPage };
    },
  });
}
