import { retrieveEnvironment } from '../../control/environments.ts';
import { Environment, toEnvironment } from '../../wire/control.ts';
import { Component, EnvironmentParams } from '../../wire/primitives.ts';
import type { App, AppOptions } from '../app.ts';
import { responses } from './responses.ts';

export function retrieveEnvironmentRoute(app: App, { database }: AppOptions): void {
  app.route({
    method: 'GET',
    url: '/v1/environments/:environment_id',
    config: { access: 'operator' },
    schema: {
      operationId: 'retrieveEnvironment',
      summary: 'Read an environment',
      tags: ['environments'],
      params: EnvironmentParams,
      response: responses({ 200: Component(Environment) }, 401, 403, 404),
    },
    async handler({ params }) {
      return toEnvironment(await retrieveEnvironment(database, params.environment_id));
    },
  });
}
