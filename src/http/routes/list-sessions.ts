import { LIMITS } from '../../queue/limits.ts';
import { listSessions } from '../../sessions/read.ts';
import type { SessionStatus } from '../../sessions/session.ts';
import { SessionPage, SessionsQuery, toSessionObject } from '../../wire/sessions.ts';
import { toBetween } from '../../wire/sessions-query.ts';
import type { App, RouteOptions } from '../app.ts';
import { responses } from './responses.ts';

export function listSessionsRoute(app: App, { database }: RouteOptions): void {
  app.route({
    method: 'GET',
    url: '/v1/sessions',
    config: { access: 'environment' },
    schema: {
      operationId: 'listSessions',
      summary: 'List sessions, newest first',
      description: 'With an environment key: those of its environment.',
      tags: ['sessions'],
      querystring: SessionsQuery,
      response: responses({ 200: SessionPage }, 400, 401, 403),
    },
    async handler({ query, caller }) {
      const statuses = [...(query['statuses[]'] ?? []), ...(query.statuses ?? [])];
      const { items, nextPage, prevPage } = await listSessions(database, {
        limit: query.limit ?? LIMITS.pageItemsDefault,
        page: query.page,
        order: query.order,
        created: toBetween(query),
        statuses: statuses.length === 0 ? undefined : (statuses as SessionStatus[]),
        includeArchived: query.include_archived,
        agentId: query.agent_id,
        environmentId: caller?.kind === 'environment' ? caller.environmentId : undefined,
      });
      return { data: items.map(toSessionObject), next_page: nextPage, prev_page: prevPage };
    },
  });
}
