import { listKeys } from '../../control/keys.ts';
import { LIMITS } from '../../queue/limits.ts';
import { KeyPage, toKey } from '../../wire/keys.ts';
import { EnvironmentParams } from '../../wire/primitives.ts';
import { ListQuery } from '../../wire/work.ts';
import type { App, AppOptions } from '../app.ts';
import { responses } from './responses.ts';

export function listKeysRoutes(app: App, { database, callers }: AppOptions): void {
  app.route({
    method: 'GET',
    url: '/control/v1/environments/:environment_id/keys',
    config: { access: 'operator' },
    schema: {
      operationId: 'listEnvironmentKeys',
      summary: "List an environment's keys, newest first",
      description: 'With those revoked and expired. A key itself is never shown again.',
      tags: ['control'],
      params: EnvironmentParams,
      querystring: ListQuery,
      response: responses({ 200: KeyPage }, 400, 401, 403, 404),
    },
    async handler({ params, query }) {
      const { limit = LIMITS.pageItemsDefault, page } = query;
      await callers.flush();
      const { items, nextPage } = await listKeys(database, params.environment_id, { limit, page });
      return { data: items.map(toKey), next_page: nextPage };
    },
  });

  app.route({
    method: 'GET',
    url: '/control/v1/keys',
    config: { access: 'operator' },
    schema: {
      operationId: 'listApiKeys',
      summary: 'List the API keys, newest first',
      description: 'With those revoked and expired. A key itself is never shown again.',
      tags: ['control'],
      querystring: ListQuery,
      response: responses({ 200: KeyPage }, 400, 401, 403),
    },
    async handler({ query }) {
      const { limit = LIMITS.pageItemsDefault, page } = query;
      await callers.flush();
      const { items, nextPage } = await listKeys(database, null, { limit, page });
      return { data: items.map(toKey), next_page: nextPage };
    },
  });
}
