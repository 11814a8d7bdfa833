import { Type } from 'typebox';
import { QueueError } from '../queue/errors.ts';
import { isInstant } from '../queue/limits.ts';
import type { Between } from '../sessions/read.ts';

const bound = (what: string) =>
  Type.Optional(Type.String({ minLength: 1, maxLength: 64, description: `RFC 3339: ${what}` }));

/** The official bounds on when something was made. */
export const BetweenQuery = {
  'created_at[gt]': bound('after this'),
  'created_at[gte]': bound('at or after this'),
  'created_at[lt]': bound('before this'),
  'created_at[lte]': bound('at or before this'),
};

/** Refuses: invalid_request. */
export function toBetween(query: { readonly [name in keyof typeof BetweenQuery]?: string | undefined }): Between {
  const between: Record<string, string> = {};
  for (const name of Object.keys(BetweenQuery) as (keyof typeof BetweenQuery)[]) {
    const instant = query[name];
    if (instant === undefined) continue;
    if (!isInstant(instant))
      throw new QueueError('invalid_request', `${name} must be an RFC 3339 instant with an offset`);
    between[name.slice('created_at['.length, -1)] = instant;
  }
  return between;
}
