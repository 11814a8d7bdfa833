import { hash, randomBytes } from 'node:crypto';
import { nanoid } from 'nanoid';

/** 144 bits of randomness behind a prefix that tells the kind. The alphabet is URL-safe. */
export const mintId = (prefix: 'work' | 'env' | 'key' | 'req' | 'worker' | 'sesn' | 'sevt' | 'flight'): string =>
  `${prefix}_${nanoid(24)}`;

/** What a key or token is stored as (contract §2). */
export const hashSecret = (secret: string): string => hash('sha256', secret, 'base64url');

/** 256 bits, in characters that fit a header. */
export const mintSecret = (): string => randomBytes(32).toString('base64url');
