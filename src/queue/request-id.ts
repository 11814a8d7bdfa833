import { createHash } from 'node:crypto';
import { QueueError } from './errors.ts';

/**
 * A request id of what names a piece of work, so that two clients, in whatever language, name the same work alike: `req-` and the
 * unpadded base64url of the SHA-256 of the parts, each written as its length in UTF-8 bytes, a colon, itself and a comma.
 * Refuses: invalid_request for no parts, or one that is not text or has unpaired surrogates, which have no UTF-8.
 */
export function requestIdOf(...parts: readonly string[]): string {
  if (parts.length === 0 || parts.some((part) => typeof part !== 'string' || !part.isWellFormed())) {
    throw new QueueError('invalid_request', 'a request id is made of one text or more, without unpaired surrogates');
  }
  const hash = createHash('sha256');
  for (const part of parts) hash.update(`${Buffer.byteLength(part)}:${part},`);
  return `req-${hash.digest('base64url')}`;
}
