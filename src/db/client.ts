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

/** What pg says when `query_timeout` has passed. */
const READ_TIMEOUT = 'Query read timeout';

/**
 * Ends its connection when the server has gone silent: after a read timeout pg would go on waiting for the lost answer, and
 * the pool would give the connection to the next call.
 */
export class PoolClient extends pg.Client {
  // biome-ignore lint/suspicious/noExplicitAny: pg's query has a dozen signatures; only the one that answers a promise is watched
  override query(...args: any[]): any {
    const answer = super.query(...(args as [pg.QueryConfig]));
    if (!(answer instanceof Promise)) return answer;
    return answer.catch((error: unknown) => {
      if (error instanceof Error && error.message === READ_TIMEOUT) this.connection.stream.destroy();
      throw error;
    });
  }
}

/**
 * Names each statement with parameters, so that a connection parses and plans it once. Kysely gives no way to name one. Not for
 * transaction poolers that do not carry prepared statements over.
 */
export class PreparingClient extends PoolClient {
  // biome-ignore lint/suspicious/noExplicitAny: as above; only Kysely's signature is changed
  override query(...args: any[]): any {
    const [text, values] = args;
    const isKyselys = args.length === 2 && typeof text === 'string' && Array.isArray(values);
    return isKyselys ? super.query({ name: nameOf(text), text, values }) : super.query(...args);
  }
}
