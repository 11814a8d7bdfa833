import { QueueError } from './errors.ts';
import { isInstant } from './limits.ts';

/** Where a page ended, newest first: an instant and the key that tells apart what was made in the same one. */
export type Cursor = { readonly createdAt: string; readonly key: string };

export const toCursor = ({ createdAt, key }: Cursor): string =>
  Buffer.from(`${createdAt} ${key}`).toString('base64url');

/** An item's internal key. */
export const SEQ = /^[1-9]\d{0,17}$/;

const CURSOR = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z) (\S+)$/;

/** Refuses: invalid_request for what no page gave out. `keys` is what a key looks like. */
export function parseCursor(page: string, keys: RegExp): Cursor {
  const [cursor, createdAt, key] = CURSOR.exec(Buffer.from(page, 'base64url').toString('latin1')) ?? [];
  const isOurs = cursor !== undefined && Buffer.from(cursor).toString('base64url') === page;
  if (!isOurs || createdAt === undefined || key === undefined || !keys.test(key) || !isInstant(createdAt)) {
    throw new QueueError('invalid_request', 'page must be the next_page of an earlier answer');
  }
  return { createdAt, key };
}

/** A page of at most `limit` out of rows that were asked for one more than that. */
export function toPage<Item>(found: readonly Item[], limit: number, cursorOf: (item: Item) => Cursor) {
  const items = found.slice(0, limit);
  const last = items.at(-1);
  return { items, nextPage: found.length > limit && last !== undefined ? toCursor(cursorOf(last)) : null };
}
