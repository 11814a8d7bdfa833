import { introspect } from '../../control/introspect.ts';
import { IntrospectBody, Introspection, toIntrospection } from '../../wire/operations.ts';
import type { App, AppOptions } from '../app.ts';
import { responses } from './responses.ts';

export function introspectRoute(app: App, { database }: AppOptions): void {
  app.route({
    method: 'POST',
    url: '/control/v1/tokens/introspect',
    config: { access: 'operator' },
    schema: {
      operationId: 'introspectToken',
      summary: "Whether a worker's sessions token is that of a hand-out that goes on",
      description: 'For what stands behind the workers and is shown their tokens. Changes nothing; not to be cached.',
      tags: ['control'],
      body: IntrospectBody,
      response: responses({ 200: Introspection }, 400, 401, 403, 413),
    },
    async handler({ body }) {
      return toIntrospection(await introspect(database, body.token));
    },
  });
}
