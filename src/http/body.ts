import { QueueError } from '../queue/errors.ts';
import type { App } from './app.ts';

export const BODY_BYTES_MAX = 1_048_576;

const JSON_MEDIA_TYPE = /^application\/(json|[\w.-]+\+json)\s*(;|$)/i;

/**
 * One parser for whatever comes. Empty is no body, also with `content-type: application/json` (the Python worker sends
 * ack and heartbeat so); a route that takes no body does not look at one, so nothing a proxy adds can end a worker.
 */
export function registerBodyParser(app: App): void {
  app.removeAllContentTypeParsers();
  // Fastify refuses a malformed or empty content type before any parser is asked, also where no body is read.
  app.addHook('onRequest', ({ raw: { headers } }, _reply, done) => {
    const given = headers['content-type'];
    if (given !== undefined && !JSON_MEDIA_TYPE.test(given)) headers['content-type'] = 'application/octet-stream';
    done();
  });
  app.addContentTypeParser('*', { parseAs: 'buffer' }, (request, body, done) => {
    if (request.routeOptions.schema?.body === undefined || body.length === 0) return done(null, undefined);
    if (!JSON_MEDIA_TYPE.test(request.headers['content-type'] ?? 'application/json')) {
      return done(new QueueError('invalid_request', 'content-type must be application/json'));
    }
    try {
      done(null, JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(body as Buffer)));
    } catch {
      done(new QueueError('invalid_request', 'the body must be JSON in UTF-8'));
    }
  });
}
