import { createEnvironment } from '../../control/environments.ts';
import { Environment, EnvironmentBody, toEnvironment } from '../../wire/control.ts';
import { Component } from '../../wire/primitives.ts';
import type { App, AppOptions } from '../app.ts';
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
    async handler({ body }) {
      const { name, description = null, metadata = {}, config } = body;
      const type = environmentTypeOf(config) ?? 'self_hosted';
      return toEnvironment(await createEnvironment(database, { name, description, metadata, type }));
    },
  });
}
