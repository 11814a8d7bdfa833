import type { FastifyRequest } from 'fastify';
import type { Static } from 'typebox';
import type { Database } from '../../db/connect.ts';
import { createTurns } from '../../dispatch/turns.ts';
import type { Offered } from '../../queue/items.ts';
import { appendEvents } from '../../sessions/append.ts';
import { sessionTopic } from '../../sessions/session.ts';
import { ChangeHeaders } from '../../wire/primitives.ts';
import { AppendBody, Appended, type SessionEvent } from '../../wire/session-events.ts';
import { SessionParams } from '../../wire/sessions.ts';
import type { App, RouteOptions } from '../app.ts';
import { change } from '../changes.ts';
import { responses } from './responses.ts';
import { EVENTS_BYTES_MAX, mendOutputs, readEvents, senderOf } from './sent-events.ts';
import { traceContextOf } from './trace.ts';

export function appendEventsRoutes(app: App, { database, queue }: RouteOptions): void {
  const inTurn = createTurns();
  const append = async (request: FastifyRequest, sessionId: string, body: Static<typeof AppendBody>) => {
    const sender = senderOf(request.caller);
    const sent = readEvents(body.events, sender);
    let offered: readonly Offered[] = [];
    let isChanged = false;
    const act = async (bound: Database) => {
      const appended = await appendEvents(bound, sessionId, sent, sender, traceContextOf(request.headers));
      ({ offered, isChanged } = appended);
      return {
        status: 200,
        body: { data: appended.events.map((event): SessionEvent => JSON.parse(event)) },
        target: sessionId,
      };
    };
    const answer = await inTurn(sessionId, () => change(database, request, act));
    queue.announce(offered);
    if (isChanged) queue.wake(sessionTopic(sessionId));
    return answer.body;
  };
  const description =
    'All or nothing. API keys send all but user.tool_result; environment keys and sessions tokens send results. Where an event needs a ' +
    'worker, one is enqueued with it. The first result of a call wins: a repeat adds nothing. The body is at most 32 MiB.';

  app.route({
    method: 'POST',
    url: '/v1/sessions/:session_id/events',
    bodyLimit: EVENTS_BYTES_MAX,
    config: { access: 'session' },
    preValidation: async ({ body }) => mendOutputs(body),
    schema: {
      operationId: 'sendSessionEvents',
      summary: 'Append events to a session',
      description,
      tags: ['sessions'],
      params: SessionParams,
      body: AppendBody,
      response: responses({ 200: Appended }, 400, 401, 403, 404, 413),
    },
    handler: (request) => append(request, request.params.session_id, request.body),
  });

  app.route({
    method: 'POST',
    url: '/control/v1/sessions/:session_id/events',
    bodyLimit: EVENTS_BYTES_MAX,
    config: { access: 'operator' },
    schema: {
      operationId: 'sendSessionEventsOnce',
      summary: 'Append events to a session',
      description: `The same, done once where it is sent again under its Idempotency-Key. ${description}`,
      tags: ['control'],
      params: SessionParams,
      headers: ChangeHeaders,
      body: AppendBody,
      response: responses({ 200: Appended }, 400, 401, 403, 404, 409, 413),
    },
    handler: (request) => append(request, request.params.session_id, request.body),
  });
}
