import { archiveEnvironment } from '../../control/change-environment.ts';
import { Environment, toEnvironment } from '../../wire/control.ts';
import { Component, EnvironmentParams } from '../../wire/primitives.ts';
import type { App, AppOptions } from '../app.ts';
import { change } from '../changes.ts';
import { responses } from './responses.ts';

export function archiveEnvironmentRoute(app: App, { database }: AppOptions): void {
  app.route({
    method: 'POST',
    url: '/v1/environments/:environment_id/archive',
    config: { access: 'operator' },
    schema: {
      operationId: 'archiveEnvironment',
      summary: 'Archive an environment',
      description: 'Workers go on with what is there; new work and changes are refused. For good.',
      tags: ['environments'],
      params: EnvironmentParams,
      response: responses({ 200: Component(Environment) }, 401, 403, 404, 413),
    },
    async handler(request) {
      const { body } = await change(database, request, async (bound) => {
        const environment = await archiveEnvironment(bound, request.params.environment_id);
        return { status: 200, body: toEnvironment(environment) };
      });
      return body;
    },
  });
}
