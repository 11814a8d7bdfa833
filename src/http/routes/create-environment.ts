import { createEnvironment } from '../../control/environments.ts';
import { Environment, EnvironmentBody, toEnvironment } from '../../wire/control.ts';
import { Component } from '../../wire/primitives.ts';
import type { App, AppOptions } from '../app.ts';
import { change } from '../changes.ts';
import { environmentTypeOf } from './environment-config.ts';
import { responses } from './responses.ts';

export function createEnvironmentRoute(app: App, { database }: AppOptions): void {
  app.route({
    method: 'POST',
    url: '/v1/environments',
    config: { access: 'operator' },
    schema: {
      operationId: 'createEnvironment',
      summary: 'Create an environment',
      tags: ['environments'],
      body: EnvironmentBody,
      response: responses({ 200: Component(Environment) }, 400, 401, 403, 409, 413),
    },
    async handler(request) {
      const { name, description = null, metadata = {}, config } = request.body;
      const { body } = await change(database, request, async (bound) => {
        const type = environmentTypeOf(config) ?? 'self_hosted';
        const environment = await createEnvironment(bound, { name, description, metadata, type });
        return { status: 200, body: toEnvironment(environment), target: environment.id };
      });
      return body;
    },
  });
}
