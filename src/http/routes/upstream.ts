import type { IncomingHttpHeaders } from 'node:http';
import { unescape as decode } from 'node:querystring';
import httpProxy from '@fastify/http-proxy';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { QueueError } from '../../queue/errors.ts';
import type { App, AppOptions } from '../app.ts';
import { sendError } from '../errors.ts';
import { fromApplication, fromCaller } from '../upstream/headers.ts';
import { bodyOf, passEvents } from '../upstream/streams.ts';
import { type Vouched, vouch } from '../upstream/vouch.ts';

declare module 'fastify' {
  interface FastifyRequest {
    /** What the application is told of the caller. */
    vouched: Vouched | undefined;
  }
}

const ROUTES = ['sessions', 'skills', 'memory_stores'].flatMap((name) => [`/${name}`, `/${name}/*`]);

/**
 * Passes sessions, skills and memory stores to the application that owns them, with what this server knows of the caller as headers.
 * Bodies are passed on as they come, of any length and type, and so are answers. Whatever keeps the application from answering is
 * unavailable (503, which workers try again), never a bare 502.
 */
export function upstreamRoutes(app: App, { database }: AppOptions, upstreamUrl: string): void {
  const { origin, pathname, username, password } = new URL(upstreamUrl);
  const credentials = Buffer.from([username, password].map(decode).join(':')).toString('base64');
  const ends = new Set<() => void>();
  app.leaving.addEventListener('abort', () => {
    for (const end of ends) end();
  });

  const toApplication = (request: FastifyRequest, headers: IncomingHttpHeaders): IncomingHttpHeaders => ({
    ...fromCaller(headers),
    // As it was sent: src/http/body.ts has another one stand in for what Fastify would refuse.
    'content-type': request.raw.headersDistinct['content-type']?.[0],
    ...(username + password === '' ? {} : { authorization: `Basic ${credentials}` }),
    ...request.vouched,
    'request-id': request.id,
  });

  app.register(async (scope) => {
    scope.removeAllContentTypeParsers();
    scope.addContentTypeParser('*', (_, payload, done) => done(null, bodyOf(payload)));
    scope.decorateRequest('vouched', undefined);
    scope.addHook('onRequest', async (request) => {
      request.vouched = await vouch(request, database);
    });
    // What began before the server was to leave did not say that its connection would close, which would hold up the end.
    scope.addHook('onResponse', async ({ raw }) => {
      if (app.leaving.aborted) raw.socket.destroySoon();
    });
    scope.register(httpProxy, {
      upstream: origin,
      prefix: '/v1',
      rewritePrefix: `${pathname.replace(/\/+$/, '')}/v1`,
      routes: ROUTES,
      config: { access: 'upstream' },
      proxyPayloads: false, // the parser is above
      disableRequestLogging: true,
      destroyAgent: true,
      retryMethods: [], // a 503 of the application is its answer, and the caller's to try again
      // Its own defaults cut what is quiet for five minutes, let 128 streams through and take any certificate.
      undici: { headersTimeout: 0, bodyTimeout: 0, connections: null, connect: { rejectUnauthorized: true } },
      replyOptions: { rewriteHeaders: fromApplication },
      handler: (request, reply, path, options) =>
        reply.from(path, {
          ...options,
          rewriteRequestHeaders: (_, headers) => toApplication(request, headers),
          onError: (_, { error }) => refuse(reply, error),
          onResponse(_, __, { statusCode, stream }) {
            if (statusCode > 599) return void stream.destroy(); // no status for Fastify: refused by onError, which does not end it
            if (!isEventStream(reply)) return void reply.send(stream);
            const end = passEvents(reply, stream);
            ends.add(end);
            reply.raw.on('close', () => ends.delete(end));
            if (app.leaving.aborted) end();
          },
        }),
    });
  });
}

const isEventStream = (reply: FastifyReply): boolean =>
  /^text\/event-stream\s*(;|$)/i.test(`${reply.getHeader('content-type')}`);

function refuse(reply: FastifyReply, cause: Error): void {
  for (const name of Object.keys(reply.getHeaders())) reply.removeHeader(name); // of an answer that was no good
  const message = 'the application that owns the sessions could not be reached, try again';
  sendError(new QueueError('unavailable', message, { cause }), reply.request, reply);
}
