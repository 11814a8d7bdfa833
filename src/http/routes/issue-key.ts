import type { IssuedKey as IssuedKeyRecord } from '../../control/key-rows.ts';
import { issueKey } from '../../control/keys.ts';
import { QueueError } from '../../queue/errors.ts';
import { ApiKeyBody, EnvironmentKeyBody, IssuedKey, toIssuedKey } from '../../wire/keys.ts';
import { ChangeHeaders, EnvironmentParams } from '../../wire/primitives.ts';
import type { App, AppOptions } from '../app.ts';
import { change } from '../changes.ts';
import { responses } from './responses.ts';

export function issueKeyRoutes(app: App, { database }: AppOptions): void {
  app.route({
    method: 'POST',
    url: '/control/v1/environments/:environment_id/keys',
    config: { access: 'operator' },
    schema: {
      operationId: 'issueEnvironmentKey',
      summary: 'Issue an environment key',
      description: 'For the workers of one environment; at most 1,000 are live at once. The key is shown this once.',
      tags: ['control'],
      params: EnvironmentParams,
      headers: ChangeHeaders,
      body: EnvironmentKeyBody,
      response: responses({ 201: IssuedKey }, 400, 401, 403, 404, 409, 413),
    },
    async handler(request, reply) {
      const { name, expires_in_seconds: expiresInSeconds, min_queued_age_ms: minQueuedAgeMs } = request.body;
      const environmentId = request.params.environment_id;
      const { body } = await change(database, request, async (bound) =>
        issued(await issueKey(bound, { environmentId, name, expiresInSeconds, minQueuedAgeMs })),
      );
      return reply.code(201).send(body);
    },
  });

  app.route({
    method: 'POST',
    url: '/control/v1/keys',
    config: { access: 'operator' },
    schema: {
      operationId: 'issueApiKey',
      summary: 'Issue an API key',
      description: 'For the whole deployment; at most 1,000 are live at once. The key is shown this once.',
      tags: ['control'],
      headers: ChangeHeaders,
      body: ApiKeyBody,
      response: responses({ 201: IssuedKey }, 400, 401, 403, 409, 413),
    },
    async handler(request, reply) {
      const { name, expires_in_seconds: expiresInSeconds, role } = request.body;
      const { body } = await change(database, request, async (bound) =>
        issued(await issueKey(bound, { environmentId: null, name, expiresInSeconds, role })),
      );
      return reply.code(201).send(body);
    },
  });
}

/** The answer that holds the key; a repeat of the request learns only its id. */
export const issued = (key: IssuedKeyRecord) => ({
  status: 201,
  body: toIssuedKey(key),
  target: key.id,
  repeat: new QueueError(
    'conflict',
    `this request made key ${key.id}, and a key is shown once: revoke it and issue another`,
    { details: { key_id: key.id } },
  ),
});
