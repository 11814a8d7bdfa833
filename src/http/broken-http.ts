import { STATUS_CODES } from 'node:http';
import type { Socket } from 'node:net';
import { QueueError } from '../queue/errors.ts';
import { mintId } from '../queue/ids.ts';
import { HttpError, toAnswer } from './errors.ts';

/** Answers what Node could not parse, in the envelope like everything else (contract §1), and closes the connection. */
export function answerBrokenHttp(error: Error & { code?: string }, socket: Socket): void {
  if (error.code === 'ECONNRESET' || !socket.writable) {
    socket.destroy();
    return;
  }
  const { status, headers, body } = toAnswer(refusalOf(error.code), mintId('req'));
  const lines = Object.entries({ ...headers, 'content-length': String(Buffer.byteLength(body)), connection: 'close' });
  socket.end(
    `HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\n${lines.map(([name, value]) => `${name}: ${value}\r\n`).join('')}\r\n${body}`,
  );
}

function refusalOf(code: string | undefined): QueueError | HttpError {
  switch (code) {
    case 'HPE_HEADER_OVERFLOW':
      return new HttpError('request_too_large', 'the request head is too large');
    case 'ERR_HTTP_REQUEST_TIMEOUT':
      // A stalled network is not the client's fault, and a 4xx on poll would end a worker.
      return new QueueError('unavailable', 'the request did not arrive in time, try again');
    default:
      return new QueueError('invalid_request', 'this is not HTTP/1.1');
  }
}
