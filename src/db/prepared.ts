import { createHash } from 'node:crypto';
import pg from 'pg';

/** The statements of this code base are a fixed few; whatever comes past this bound is sent unnamed. */
const NAMES_MAX = 500;
const names = new Map<string, string>();

function nameOf(text: string): string | undefined {
  let name = names.get(text);
  if (name === undefined && names.size < NAMES_MAX) {
    name = `lh_${createHash('sha256').update(text).digest('base64url').slice(0, 24)}`;
    names.set(text, name);
  }
  return name;
}

/**
 * A client that names each statement with parameters, so that a connection parses and plans it once. Kysely gives no way to
 * name one. Not for transaction poolers that do not carry prepared statements over.
 */
export class PreparingClient extends pg.Client {
  // biome-ignore lint/suspicious/noExplicitAny: pg's query has a dozen signatures; only Kysely's one is changed
  override query(...args: any[]): any {
    const [text, values] = args;
    if (args.length === 2 && typeof text === 'string' && Array.isArray(values)) {
      return super.query({ name: nameOf(text), text, values } as pg.QueryConfig);
    }
    return super.query(...(args as [pg.QueryConfig]));
  }
}
