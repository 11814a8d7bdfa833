import { patchMetadata } from '../../queue/metadata.ts';
import { Component, WorkParams } from '../../wire/primitives.ts';
import { MetadataPatch, toWork, Work } from '../../wire/work.ts';
import type { App, AppOptions } from '../app.ts';
import { change } from '../changes.ts';
import { responses } from './responses.ts';

export function patchMetadataRoute(app: App, { database }: AppOptions): void {
  app.route({
    method: 'POST',
    url: '/v1/environments/:environment_id/work/:work_id',
    config: { access: 'environment' },
    schema: {
      operationId: 'updateWork',
      summary: "Merge into a work item's metadata",
      tags: ['work'],
      params: WorkParams,
      body: MetadataPatch,
      response: responses({ 200: Component(Work) }, 400, 401, 403, 404, 413),
    },
    async handler(request) {
      const { params, body: asked } = request;
      const { body } = await change(database, request, async (bound) => {
        const ref = { environmentId: params.environment_id, id: params.work_id };
        return { status: 200, body: toWork(await patchMetadata(bound, ref, asked.metadata)) };
      });
      return body;
    },
  });
}
