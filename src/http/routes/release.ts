import { release } from '../../queue/release.ts';
import { ReleaseBody, toWorkRelease, WorkRelease } from '../../wire/outcome.ts';
import { ChangeHeaders, WorkParams } from '../../wire/primitives.ts';
import type { App, AppOptions } from '../app.ts';
import { change } from '../changes.ts';
import { holderOf } from './holder.ts';
import { responses } from './responses.ts';

export function releaseRoute(app: App, { database, queue }: AppOptions): void {
  app.route({
    method: 'POST',
    url: '/control/v1/environments/:environment_id/work/:work_id/release',
    config: { access: 'holder' },
    schema: {
      operationId: 'releaseWork',
      summary: 'Give an item back: not mine, or no slot',
      description:
        "With the item's own sessions token, or an API key, while its lease lives: it is queued again under a new id, now or later. " +
        'The hand-out counts neither against max_hand_outs nor as a failure. An item that is stopping ends instead. Once more is answered the same.',
      tags: ['control'],
      params: WorkParams,
      headers: ChangeHeaders,
      body: ReleaseBody,
      response: responses({ 200: WorkRelease }, 400, 401, 403, 404, 409, 412, 413),
    },
    async handler(request) {
      const { environment_id: environmentId } = request.params;
      let isFree = false;
      const { body } = await change(database, request, async (bound) => {
        const released = await release(bound, { ...holderOf(request), delayMs: request.body?.delay_ms ?? 0 });
        isFree = released.isFree;
        return { status: 200, body: toWorkRelease(released) };
      });
      if (isFree) queue.announce([{ kind: 'tool_exec', lane: 'wire', environmentId }]);
      return body;
    },
  });
}
