import type { FastifyRequest } from 'fastify';
import type { Static } from 'typebox';
import type { Offered } from '../../queue/items.ts';
import { createSession } from '../../sessions/create.ts';
import { ChangeHeaders, Component } from '../../wire/primitives.ts';
import { Session, SessionBody, toAgent, toSessionObject } from '../../wire/sessions.ts';
import type { App, RouteOptions } from '../app.ts';
import { change } from '../changes.ts';
import { responses } from './responses.ts';
import { EVENTS_BYTES_MAX, readEvents, senderOf } from './sent-events.ts';
import { traceContextOf } from './trace.ts';

export function createSessionRoutes(app: App, { database, queue }: RouteOptions): void {
  const create = async (request: FastifyRequest, body: Static<typeof SessionBody>) => {
    const initialEvents = readEvents(body.initial_events ?? [], senderOf(request.caller));
    let offered: readonly Offered[] = [];
    const answer = await change(database, request, async (bound) => {
      const created = await createSession(
        bound,
        {
          environmentId: body.environment_id,
          title: body.title ?? null,
          metadata: body.metadata ?? {},
          agent: toAgent(body.agent),
          initialEvents,
        },
        traceContextOf(request.headers),
      );
      offered = created.offered;
      return { status: 200, body: toSessionObject(created.session), target: created.session.id };
    });
    queue.announce(offered);
    return answer.body;
  };
  const schema = {
    summary: 'Create a session on a self_hosted environment',
    body: SessionBody,
    response: responses({ 200: Component(Session) }, 400, 401, 403, 404, 413),
  };

  app.route({
    method: 'POST',
    url: '/v1/sessions',
    bodyLimit: EVENTS_BYTES_MAX,
    config: { access: 'operator' },
    schema: { ...schema, operationId: 'createSession', tags: ['sessions'] },
    handler: (request) => create(request, request.body),
  });

  app.route({
    method: 'POST',
    url: '/control/v1/sessions',
    bodyLimit: EVENTS_BYTES_MAX,
    config: { access: 'operator' },
    schema: {
      ...schema,
      operationId: 'createSessionOnce',
      description: 'The same, made once where it is sent again under its Idempotency-Key.',
      tags: ['control'],
      headers: ChangeHeaders,
      response: responses({ 200: Component(Session) }, 400, 401, 403, 404, 409, 413),
    },
    handler: (request) => create(request, request.body),
  });
}
