import { updateEnvironment } from '../../control/change-environment.ts';
import { Environment, EnvironmentChangeBody, toEnvironment } from '../../wire/control.ts';
import { Component, EnvironmentParams } from '../../wire/primitives.ts';
import type { App, AppOptions } from '../app.ts';
import { change } from '../changes.ts';
import { environmentTypeOf } from './environment-config.ts';
import { responses } from './responses.ts';

export function updateEnvironmentRoute(app: App, { database }: AppOptions): void {
  app.route({
    method: 'POST',
    url: '/v1/environments/:environment_id',
    config: { access: 'operator' },
    schema: {
      operationId: 'updateEnvironment',
      summary: 'Change an environment',
      description: 'What is omitted keeps its value.',
      tags: ['environments'],
      params: EnvironmentParams,
      body: EnvironmentChangeBody,
      response: responses({ 200: Component(Environment) }, 400, 401, 403, 404, 409, 413),
    },
    async handler(request) {
      const { name, description, metadata, config } = request.body;
      const { body } = await change(database, request, async (bound) => {
        const wanted = { name: name ?? undefined, description, metadata, type: environmentTypeOf(config) };
        const environment = await updateEnvironment(bound, request.params.environment_id, wanted);
        return { status: 200, body: toEnvironment(environment) };
      });
      return body;
    },
  });
}
