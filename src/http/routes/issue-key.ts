import { issueKey } from '../../control/credentials.ts';
import { IssuedKey, KeyBody } from '../../wire/control.ts';
import { EnvironmentParams } from '../../wire/primitives.ts';
import type { App, AppOptions } from '../app.ts';
import { responses } from './responses.ts';

export function issueKeyRoute(app: App, { database }: AppOptions): void {
  app.route({
    method: 'POST',
    url: '/control/v1/environments/:environment_id/keys',
    config: { access: 'operator' },
    schema: {
      operationId: 'issueEnvironmentKey',
      summary: 'Issue an environment key',
      description: 'For the workers of one environment, valid for a year. The key is shown this once.',
      tags: ['control'],
      params: EnvironmentParams,
      body: KeyBody,
      response: responses({ 201: IssuedKey }, 400, 401, 403, 404, 413),
    },
    async handler({ params, body }, reply) {
      const issued = await issueKey(database, { environmentId: params.environment_id, name: body.name });
      const { id, name, key, expiresAt } = issued;
      return reply.code(201).send({ id, name, key, expires_at: expiresAt });
    },
  });
}
