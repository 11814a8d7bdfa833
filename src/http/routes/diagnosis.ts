import { Diagnosis, toDiagnosis } from '../../wire/diagnosis.ts';
import { EnvironmentParams } from '../../wire/primitives.ts';
import type { App, AppOptions } from '../app.ts';
import { responses } from './responses.ts';

export function diagnosisRoute(app: App, { queue }: AppOptions): void {
  app.route({
    method: 'GET',
    url: '/control/v1/environments/:environment_id/diagnosis',
    config: { access: 'operator' },
    schema: {
      operationId: 'diagnoseEnvironment',
      summary: 'Why work is not moving',
      description: 'Each finding in words, with what shows it; beside them the figures of stats.',
      tags: ['control'],
      params: EnvironmentParams,
      response: responses({ 200: Diagnosis }, 401, 403, 404),
    },
    async handler({ params }) {
      return toDiagnosis(await queue.diagnose(params.environment_id));
    },
  });
}
