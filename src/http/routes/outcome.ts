import { reportOutcome } from '../../queue/outcome.ts';
import { OutcomeBody, toReport, toWorkOutcome, WorkOutcome } from '../../wire/outcome.ts';
import { ChangeHeaders, WorkParams } from '../../wire/primitives.ts';
import type { App, AppOptions } from '../app.ts';
import { change } from '../changes.ts';
import { holderOf } from './holder.ts';
import { responses } from './responses.ts';

export function outcomeRoute(app: App, { database, queue }: AppOptions): void {
  app.route({
    method: 'PATCH',
    url: '/control/v1/environments/:environment_id/work/:work_id',
    config: { access: 'holder' },
    schema: {
      operationId: 'reportWork',
      summary: 'Say what became of an item',
      description:
        "With the item's own sessions token, or an API key, while its lease lives. Succeeded, it ends, with its result. Failed, it is queued again under a new id, " +
        'after half to all of 1 s, 2 s, 4 s … a day; at its last attempt, or where that is final, it is set aside. One that is stopping ends either way. ' +
        'The same again is answered the same; something else is 409.',
      tags: ['control'],
      params: WorkParams,
      headers: ChangeHeaders,
      body: OutcomeBody,
      response: responses({ 200: WorkOutcome }, 400, 401, 403, 404, 409, 412, 413),
    },
    async handler(request) {
      const { environment_id: environmentId } = request.params;
      const reason = request.caller?.kind === 'api' ? 'operator' : 'worker';
      let isFollowed = false;
      const { body } = await change(database, request, async (bound) => {
        const report = { ...holderOf(request), ...toReport(request.body), reason } as const;
        const reported = await reportOutcome(bound, report, queue.settings);
        isFollowed = reported.isFollowed;
        return { status: 200, body: toWorkOutcome(reported) };
      });
      if (isFollowed) queue.announce([{ kind: 'tool_exec', lane: 'wire', environmentId }]);
      return body;
    },
  });
}
