import type { FastifyReply, FastifyRequest } from 'fastify';
import { Type } from 'typebox';
import type { Callers } from '../control/credentials.ts';
import type { Sink } from '../dispatch/sink.ts';
import { type Access, authorise } from './auth.ts';
import { HttpError } from './errors.ts';

/** The answer of a route that streams. */
export const EventStream = {
  description: 'Server-sent events: each frame has an `event:` line with the type of the event in its `data:`',
  content: { 'text/event-stream': { schema: Type.String() } },
} as never;

/** The answer begins: from here on it is not Fastify's. */
export function openSink(request: FastifyRequest, reply: FastifyReply, access: Access, callers: Callers): Sink {
  const { raw } = reply;
  reply.hijack();
  request.raw.socket.setNoDelay(true);
  raw.writeHead(200, {
    ...(reply.getHeaders() as Record<string, string>),
    'content-type': 'text/event-stream; charset=utf-8',
    'x-accel-buffering': 'no', // some fronts would keep frames back
    connection: 'close', // nothing comes after a stream, and a shutdown does not wait for its connection
  });
  return {
    write: (frame) => raw.write(frame),
    bytesBehind: () => raw.writableLength,
    end: () => void raw.end(),
    cut: () => void raw.destroy(),
    isAllowed: () =>
      authorise(request, access, callers).then(
        () => true,
        (error) => {
          if (error instanceof HttpError) return false;
          throw error;
        },
      ),
  };
}
