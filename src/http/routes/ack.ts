import { Component, WorkParams } from '../../wire/primitives.ts';
import { toWork, Work } from '../../wire/work.ts';
import type { App, AppOptions } from '../app.ts';
import { responses } from './responses.ts';

/**
 * The official Go worker gives an ack two more tries and then force-stops the item: after a second each, an outage of three
 * seconds would lose work. The reservation may lapse meanwhile; a late ack is 404 then, and so is the stop.
 */
const RETRY_AFTER_SECONDS = 10;

export function ackRoute(app: App, { queue }: AppOptions): void {
  app.route({
    method: 'POST',
    url: '/v1/environments/:environment_id/work/:work_id/ack',
    config: { access: 'item', retryAfterSeconds: RETRY_AFTER_SECONDS },
    schema: {
      operationId: 'ackWork',
      summary: 'Acknowledge a work item',
      description: 'Starts the startup lease of a queued item; one that is past that is answered unchanged.',
      tags: ['work'],
      params: WorkParams,
      response: responses({ 200: Component(Work) }, 401, 403, 404, 413),
    },
    async handler({ params }) {
      return toWork(await queue.ackOne({ environmentId: params.environment_id, id: params.work_id }));
    },
  });
}
