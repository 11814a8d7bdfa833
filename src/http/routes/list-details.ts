import { LIMITS } from '../../queue/limits.ts';
import { listDetails } from '../../queue/list-details.ts';
import { toWorkDetails, WorkDetailsPage, WorkDetailsQuery } from '../../wire/operations.ts';
import { EnvironmentParams } from '../../wire/primitives.ts';
import type { App, AppOptions } from '../app.ts';
import { responses } from './responses.ts';

export function listDetailsRoute(app: App, { database }: AppOptions): void {
  app.route({
    method: 'GET',
    url: '/control/v1/environments/:environment_id/work',
    config: { access: 'operator' },
    schema: {
      operationId: 'listWorkDetails',
      summary: 'List items of both lanes in detail, newest first',
      description:
        'An item passes when it has one of the values of each filter that is given. ' +
        `At most ${LIMITS.filters} filter values in all.`,
      tags: ['control'],
      params: EnvironmentParams,
      querystring: WorkDetailsQuery,
      response: responses({ 200: WorkDetailsPage }, 400, 401, 403, 404),
    },
    async handler({ params, query }) {
      const { items, nextPage } = await listDetails(database, params.environment_id, {
        limit: query.limit ?? LIMITS.pageItemsDefault,
        page: query.page,
        states: query.state,
        sessionIds: query.session,
        kinds: query.kind,
        stopReasons: query.reason,
        outcomes: query.outcome,
        workerIds: query.worker,
      });
      return { data: items.map(toWorkDetails), next_page: nextPage };
    },
  });
}
