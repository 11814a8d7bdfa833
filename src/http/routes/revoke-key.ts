import { revokeKey } from '../../control/keys.ts';
import { ApiKeyParams, EnvironmentKeyParams, Key, toKey } from '../../wire/keys.ts';
import { ChangeHeaders, Component } from '../../wire/primitives.ts';
import type { App, AppOptions } from '../app.ts';
import { change } from '../changes.ts';
import { responses } from './responses.ts';

const DESCRIPTION = 'Every replica refuses it within a second. For good; once more changes nothing.';

export function revokeKeyRoutes(app: App, { database }: AppOptions): void {
  app.route({
    method: 'DELETE',
    url: '/control/v1/environments/:environment_id/keys/:key_id',
    config: { access: 'operator' },
    schema: {
      operationId: 'revokeEnvironmentKey',
      summary: 'Revoke an environment key',
      description: DESCRIPTION,
      tags: ['control'],
      params: EnvironmentKeyParams,
      headers: ChangeHeaders,
      response: responses({ 200: Component(Key) }, 400, 401, 403, 404, 409, 413),
    },
    async handler(request) {
      const { environment_id: environmentId, key_id: id } = request.params;
      const { body } = await change(database, request, async (bound) => ({
        status: 200,
        body: toKey(await revokeKey(bound, { environmentId, id })),
        target: id,
      }));
      return body;
    },
  });

  app.route({
    method: 'DELETE',
    url: '/control/v1/keys/:key_id',
    config: { access: 'operator' },
    schema: {
      operationId: 'revokeApiKey',
      summary: 'Revoke an API key',
      description: DESCRIPTION,
      tags: ['control'],
      params: ApiKeyParams,
      headers: ChangeHeaders,
      response: responses({ 200: Component(Key) }, 400, 401, 403, 404, 409, 413),
    },
    async handler(request) {
      const id = request.params.key_id;
      const { body } = await change(database, request, async (bound) => ({
        status: 200,
        body: toKey(await revokeKey(bound, { environmentId: null, id })),
        target: id,
      }));
      return body;
    },
  });
}
