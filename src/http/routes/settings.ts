import { changeSettings, pauseEnvironment, readSettings, resumeEnvironment } from '../../control/settings.ts';
import { ChangeHeaders, Component, EnvironmentParams } from '../../wire/primitives.ts';
import { EnvironmentSettings, SettingsChange, toEnvironmentSettings, toSettingsChange } from '../../wire/settings.ts';
import type { App, AppOptions } from '../app.ts';
import { change } from '../changes.ts';
import { responses } from './responses.ts';

const SETTINGS_BYTES_MAX = 65_536;

export function settingsRoutes(app: App, { database, queue }: AppOptions): void {
  app.route({
    method: 'GET',
    url: '/control/v1/environments/:environment_id/settings',
    config: { access: 'operator' },
    schema: {
      operationId: 'readSettings',
      summary: "An environment's own settings, and what holds",
      tags: ['control'],
      params: EnvironmentParams,
      response: responses({ 200: Component(EnvironmentSettings) }, 401, 403, 404),
    },
    async handler({ params }) {
      return toEnvironmentSettings(await readSettings(database, params.environment_id, queue.settings));
    },
  });

  app.route({
    method: 'PATCH',
    url: '/control/v1/environments/:environment_id/settings',
    bodyLimit: SETTINGS_BYTES_MAX,
    config: { access: 'operator' },
    schema: {
      operationId: 'changeSettings',
      summary: "Change an environment's own settings",
      description: 'For what is decided from now on; leases that run keep their length. The body is at most 64 KiB.',
      tags: ['control'],
      params: EnvironmentParams,
      headers: ChangeHeaders,
      body: SettingsChange,
      response: responses({ 200: Component(EnvironmentSettings) }, 400, 401, 403, 404, 409, 413),
    },
    async handler(request) {
      const id = request.params.environment_id;
      const { body } = await change(database, request, async (bound) => ({
        status: 200,
        body: toEnvironmentSettings(await changeSettings(bound, id, toSettingsChange(request.body), queue.settings)),
      }));
      return body;
    },
  });
}

export function pauseRoutes(app: App, { database, queue }: AppOptions): void {
  for (const [verb, pauseOrResume, summary, description] of [
    [
      'pause',
      pauseEnvironment,
      'Hand nothing out for the time being',
      'Polls that wait do so until their time is up, others are answered null. Running work goes on. Once more changes nothing.',
    ],
    ['resume', resumeEnvironment, 'Hand out again', 'Once more changes nothing.'],
  ] as const) {
    app.route({
      method: 'POST',
      url: `/control/v1/environments/:environment_id/${verb}`,
      config: { access: 'operator' },
      schema: {
        operationId: `${verb}Environment`,
        summary,
        description,
        tags: ['control'],
        params: EnvironmentParams,
        headers: ChangeHeaders,
        response: responses({ 200: Component(EnvironmentSettings) }, 400, 401, 403, 404, 409, 413),
      },
      async handler(request) {
        const id = request.params.environment_id;
        const { body } = await change(database, request, async (bound) => ({
          status: 200,
          body: toEnvironmentSettings(await pauseOrResume(bound, id, queue.settings)),
        }));
        if (verb === 'resume') queue.wake(id);
        queue.hint(id, { type: `environment_${verb}d` });
        return body;
      },
    });
  }
}
