import type { OutgoingHttpHeaders } from 'node:http';
import { PassThrough, type Readable } from 'node:stream';
import type { FastifyReply } from 'fastify';

/**
 * A request's body as a stream of its own. The proxy's client destroys what it was given when it fails, and with the request itself
 * it would take the connection that the refusal is to be written to.
 */
export function bodyOf(payload: Readable): PassThrough {
  const body = new PassThrough();
  payload.on('error', (error) => body.destroy(error)); // the caller left: the application is not to take half for whole
  body.on('error', () => {});
  body.on('close', () => {
    payload.unpipe(body);
    payload.resume(); // what nobody reads any more would stand before the next request
  });
  return payload.pipe(body);
}

/**
 * Passes events on as they come: headers before the first one, each chunk at once, with no limit in time. Whichever end goes takes the
 * other along. Answers how to end it in order.
 */
export function passEvents(reply: FastifyReply, events: Readable): () => void {
  const { raw } = reply;
  reply.hijack();
  raw.writeHead(reply.statusCode, reply.getHeaders() as OutgoingHttpHeaders);
  raw.flushHeaders();
  events.on('error', () => raw.destroy()); // cut, so that the caller can tell it from an end
  raw.on('close', () => events.destroy());
  if (raw.destroyed) events.destroy();
  events.pipe(raw);
  return () => {
    events.unpipe(raw);
    raw.end();
  };
}
