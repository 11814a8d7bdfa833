import { createLocks } from '../../locks/create-locks.ts';
import { LockPage, toLockObject } from '../../wire/locks.ts';
import { EnvironmentParams } from '../../wire/primitives.ts';
import { ListQuery } from '../../wire/work.ts';
import type { App, AppOptions } from '../app.ts';
import { responses } from './responses.ts';

export function listLocksRoute(app: App, { database, queue }: AppOptions): void {
  app.route({
    method: 'GET',
    url: '/control/v1/environments/:environment_id/locks',
    config: { access: 'member' },
    schema: {
      operationId: 'listLocks',
      summary: 'The locks that are held now, the last acquired first',
      tags: ['locks'],
      params: EnvironmentParams,
      querystring: ListQuery,
      response: responses({ 200: LockPage }, 400, 401, 403, 404),
    },
    async handler({ params: { environment_id: environmentId }, query }) {
      const { items, nextPage } = await createLocks({ database, queue, environmentId }).list(query);
      return { data: items.map(toLockObject), next_page: nextPage };
    },
  });
}
