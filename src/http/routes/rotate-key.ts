import { rotateKey } from '../../control/keys.ts';
import { ApiKeyParams, EnvironmentKeyParams, IssuedKey, RotateBody } from '../../wire/keys.ts';
import { ChangeHeaders } from '../../wire/primitives.ts';
import type { App, AppOptions } from '../app.ts';
import { change } from '../changes.ts';
import { issued } from './issue-key.ts';
import { responses } from './responses.ts';

const DESCRIPTION =
  "Issues a key with the old one's name and rights, shown this once. Both are valid until the overlap is over.";

export function rotateKeyRoutes(app: App, { database }: AppOptions): void {
  app.route({
    method: 'POST',
    url: '/control/v1/environments/:environment_id/keys/:key_id/rotate',
    config: { access: 'operator' },
    schema: {
      operationId: 'rotateEnvironmentKey',
      summary: 'Replace an environment key',
      description: DESCRIPTION,
      tags: ['control'],
      params: EnvironmentKeyParams,
      headers: ChangeHeaders,
      body: RotateBody,
      response: responses({ 201: IssuedKey }, 400, 401, 403, 404, 409, 413),
    },
    async handler(request, reply) {
      const { environment_id: environmentId, key_id: id } = request.params;
      const { overlap_seconds: overlapSeconds, expires_in_seconds: expiresInSeconds } = request.body ?? {};
      const { body } = await change(database, request, async (bound) =>
        issued(await rotateKey(bound, { environmentId, id }, { overlapSeconds, expiresInSeconds })),
      );
      return reply.code(201).send(body);
    },
  });

  app.route({
    method: 'POST',
    url: '/control/v1/keys/:key_id/rotate',
    config: { access: 'operator' },
    schema: {
      operationId: 'rotateApiKey',
      summary: 'Replace an API key',
      description: DESCRIPTION,
      tags: ['control'],
      params: ApiKeyParams,
      headers: ChangeHeaders,
      body: RotateBody,
      response: responses({ 201: IssuedKey }, 400, 401, 403, 404, 409, 413),
    },
    async handler(request, reply) {
      const { overlap_seconds: overlapSeconds, expires_in_seconds: expiresInSeconds } = request.body ?? {};
      const ref = { environmentId: null, id: request.params.key_id };
      const { body } = await change(database, request, async (bound) =>
        issued(await rotateKey(bound, ref, { overlapSeconds, expiresInSeconds })),
      );
      return reply.code(201).send(body);
    },
  });
}
