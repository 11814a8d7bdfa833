import { listAudit } from '../../control/audit.ts';
import { LIMITS } from '../../queue/limits.ts';
import { AuditPage, AuditQuery, toAuditEntry } from '../../wire/audit.ts';
import type { App, AppOptions } from '../app.ts';
import { responses } from './responses.ts';

export function listAuditRoute(app: App, { database }: AppOptions): void {
  app.route({
    method: 'GET',
    url: '/control/v1/audit',
    config: { access: 'operator' },
    schema: {
      operationId: 'listAudit',
      summary: 'List what API keys changed, newest first',
      description:
        'One entry for each change that was asked for with an API key, also for a refused one; none for a repeat, ' +
        'and none for what never came to the act: bad input, a credential without the right.',
      tags: ['control'],
      querystring: AuditQuery,
      response: responses({ 200: AuditPage }, 400, 401, 403),
    },
    async handler({ query }) {
      const { limit = LIMITS.pageItemsDefault, page, environment_id: environmentId, key_id: keyId, action } = query;
      const { items, nextPage } = await listAudit(database, { limit, page, environmentId, keyId, action });
      return { data: items.map(toAuditEntry), next_page: nextPage };
    },
  });
}
