import { sql } from 'kysely';
import { auditInsert } from '../../control/audit.ts';
import { enqueue, enqueueAll, offeredOf } from '../../queue/enqueue.ts';
import type { Offered } from '../../queue/items.ts';
import { EnqueueAllBody, EnqueueBody, EnqueuedAll, toEnqueueRequest } from '../../wire/enqueue.ts';
import { ChangeHeaders, Component, EnvironmentParams } from '../../wire/primitives.ts';
import { toWork, Work } from '../../wire/work.ts';
import type { App, AppOptions } from '../app.ts';
import { changeAtOnce } from '../changes.ts';
import { responses } from './responses.ts';
import { traceContextOf } from './trace.ts';

const BATCH_BYTES_MAX = 8 * 1_048_576;

/** As the statement's own `answer` tells it. */
const BATCH_OUTCOME = { status: sql`200`, target: sql`null::text` };

export function enqueueRoutes(app: App, { database, queue }: AppOptions): void {
  app.route({
    method: 'POST',
    url: '/control/v1/environments/:environment_id/work',
    config: { access: 'operator' },
    schema: {
      operationId: 'enqueueWork',
      summary: 'Enqueue work for a session',
      description:
        'A known request_id answers its item; a queued, starting or active item of the session and kind covers the request; ' +
        'else there is a new one.',
      tags: ['control'],
      params: EnvironmentParams,
      headers: ChangeHeaders,
      body: EnqueueBody,
      response: responses(
        {
          200: { ...Component(Work), description: 'A remembered request or a live item answers' },
          201: { ...Component(Work), description: 'Created' },
        },
        ...([400, 401, 403, 404, 409, 413] as const),
      ),
    },
    async handler(request, reply) {
      const asked = toEnqueueRequest(request.params.environment_id, request.body, traceContextOf(request.headers));
      let offered: Offered[] = [];
      const { status, body } = await changeAtOnce(database, request, async (bound, entry) => {
        const enqueued = await (entry === undefined ? enqueue(bound, asked) : queue.enqueueOne(asked, entry));
        offered = offeredOf([enqueued]);
        return { status: enqueued.created ? 201 : 200, body: toWork(enqueued.item), target: enqueued.item.id };
      });
      queue.announce(offered);
      return reply.code(status === 201 ? 201 : 200).send(body);
    },
  });

  app.route({
    method: 'POST',
    url: '/control/v1/environments/:environment_id/work/batch',
    bodyLimit: BATCH_BYTES_MAX,
    config: { access: 'operator' },
    schema: {
      operationId: 'enqueueWorkBatch',
      summary: 'Enqueue up to 1,000 items, all or nothing',
      description:
        'Each as if enqueued alone, in the order given: an earlier one covers a later one. The body is at most 8 MiB.',
      tags: ['control'],
      params: EnvironmentParams,
      headers: ChangeHeaders,
      body: EnqueueAllBody,
      response: responses({ 200: EnqueuedAll }, 400, 401, 403, 404, 409, 413),
    },
    async handler(request) {
      const environmentId = request.params.environment_id;
      const traceContext = traceContextOf(request.headers);
      const asked = request.body.items.map((item, index) =>
        toEnqueueRequest(environmentId, item, traceContext, `items.${index}.`),
      );
      let offered: Offered[] = [];
      const { body } = await changeAtOnce(database, request, async (bound, entry) => {
        const unlessLost = sql`where not exists (select from answer n where n.id is null)`;
        const recorded = entry && auditInsert(bound.names, { ...entry, ...BATCH_OUTCOME }, unlessLost);
        const enqueued = await enqueueAll(bound, asked, undefined, recorded);
        offered = offeredOf(enqueued);
        return { status: 200, body: { data: enqueued.map(({ created, item }) => ({ created, work: toWork(item) })) } };
      });
      queue.announce(offered);
      return body;
    },
  });
}
