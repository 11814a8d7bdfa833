import type { FastifyReply } from 'fastify';
import { LIMITS } from '../../queue/limits.ts';
import type { HandOut } from '../../queue/poll.ts';
import { EnvironmentParams } from '../../wire/primitives.ts';
import { PollAnswer, PollHeaders, PollQuery, toWork } from '../../wire/work.ts';
import type { App, AppOptions } from '../app.ts';
import { responses } from './responses.ts';

export function pollRoute(app: App, { queue, publicUrl }: AppOptions): void {
  app.route({
    method: 'GET',
    url: '/v1/environments/:environment_id/work/poll',
    config: { access: 'environment', takesWork: true, refusals: { 401: 'credential' } },
    schema: {
      operationId: 'pollWork',
      summary: 'Take the next work item',
      description:
        'Reserves one item and answers it with its `secret`, or answers the JSON body `null` when there is none. ' +
        'The item stays queued until it is acked; an unacked one is handed out again under a new id.',
      tags: ['work'],
      params: EnvironmentParams,
      querystring: PollQuery,
      headers: PollHeaders,
      response: responses({ 200: PollAnswer }, 400, 401, 403, 404),
    },
    async handler(request, reply) {
      const delivery = watchDelivery(reply, (handOut, unseen) =>
        queue.putBack(handOut, unseen).catch((error) => request.log.warn({ err: error }, 'could not put an item back')),
      );
      const handOut = await queue.poll({
        environmentId: request.params.environment_id,
        workerId: workerIdOf(request.headers['anthropic-worker-id']),
        blockMs: request.query.block_ms,
        reclaimOlderThanMs: request.query.reclaim_older_than_ms,
        minQueuedAgeMs: request.caller?.kind === 'environment' ? request.caller.minQueuedAgeMs : 0,
        signal: delivery.gone,
      });
      delivery.deliver(handOut);
      if (handOut === null) return reply.send(null);
      const { traceparent, tracestate } = handOut.item.traceContext ?? {};
      if (traceparent !== undefined) reply.header('traceparent', traceparent);
      if (tracestate !== undefined) reply.header('tracestate', tracestate);
      return reply.send(toWork(handOut.item, secretOf(handOut, publicUrl())));
    },
  });
}

/** Contract §6. */
const secretOf = ({ sessionsToken }: HandOut, apiBaseUrl: string): string =>
  Buffer.from(JSON.stringify({ sessions_token: sessionsToken, api_base_url: apiBaseUrl })).toString('base64url');

/** Longer or empty is ignored, not an error (contract §7). */
const workerIdOf = (header: unknown): string | undefined =>
  typeof header === 'string' && header !== '' && header.length <= LIMITS.workerIdCharacters ? header : undefined;

/**
 * A client that goes away must not cost an item its place. Before the answer: `gone` aborts and the queue gives the item to
 * the next. After it was begun: the item is put back, under its id only if no byte went out.
 */
function watchDelivery(reply: FastifyReply, putBack: (handOut: HandOut, unseen: boolean) => Promise<unknown>) {
  const gone = new AbortController();
  let delivering: HandOut | null = null;
  if (reply.raw.destroyed) gone.abort(); // it went away while its credential was being checked
  reply.raw.once('close', () => {
    if (reply.raw.writableFinished) return;
    gone.abort();
    if (delivering !== null) void putBack(delivering, !reply.raw.headersSent);
  });
  return {
    gone: gone.signal,
    deliver(handOut: HandOut | null): void {
      delivering = handOut;
    },
  };
}
