import { randomBytes } from 'node:crypto';
import type { FastifyBaseLogger } from 'fastify';
import { sql } from 'kysely';
import pg from 'pg';
import type { Test } from 'tap';
import { createCallers } from '../../src/control/credentials.ts';
import { createEnvironment, type Environment } from '../../src/control/environments.ts';
import { issueKey } from '../../src/control/keys.ts';
import { createQueue, type Queue } from '../../src/create-queue.ts';
import { type Database, type DatabaseOptions, openDatabase } from '../../src/db/connect.ts';
import { migrate } from '../../src/db/migrate.ts';
import { type App, type AppOptions, buildApp } from '../../src/http/app.ts';
import type { QueueSettings } from '../../src/queue/settings.ts';

export type Engine = 'postgres' | 'pglite';

/** The contract suites run on both; the mutation runner, which runs them hundreds of times, says TEST_ENGINES=postgres. */
export const ENGINES: readonly Engine[] =
  process.env.TEST_ENGINES === 'postgres' ? ['postgres'] : ['postgres', 'pglite'];

export const OPERATOR_KEY = 'operator-key-of-the-tests';

export const databaseUrl = (): string => {
  const url = process.env.TEST_DATABASE_URL;
  if (!url) throw new Error('run the tests with npm test: it starts Postgres');
  return url;
};

/** A migrated database of the test's own: a schema of its own on Postgres, a fresh PGlite in memory. Gone at the end. */
export async function testDatabase(
  t: Test,
  engine: Engine = 'postgres',
  options: DatabaseOptions = {},
): Promise<Database> {
  const schema = `test_${randomBytes(6).toString('hex')}`;
  const database = await openDatabase({
    ...(engine === 'postgres' ? { connectionString: databaseUrl() } : {}),
    schema,
    ...options,
  });
  await migrate(database);
  t.teardown(async () => {
    if (engine === 'postgres' && options.schema === undefined) {
      const cleaner = new pg.Client({ connectionString: databaseUrl() });
      await cleaner.connect();
      await cleaner.query(`drop schema if exists ${schema} cascade`);
      await cleaner.end();
    }
  });
  t.teardown(() => database.close());
  return database;
}

export type Server = {
  readonly database: Database;
  readonly queue: Queue;
  readonly app: App;
  readonly url: string;
  readonly environment: Environment;
  readonly environmentKey: string;
  /** One request over real HTTP; `as` is a credential (default: the environment's key, null: none). */
  call(method: string, path: string, options?: CallOptions): Promise<Answer>;
  /** A path below the environment's work: `work('/poll')`. */
  work(path?: string): string;
  enqueue(sessionId: string, metadata?: Record<string, string>): Promise<string>;
};

export type CallOptions = {
  as?: string | null;
  headers?: Record<string, string>;
  body?: unknown;
  /** A body sent as it is. */
  raw?: string | Buffer;
  signal?: AbortSignal;
};

// biome-ignore lint/suspicious/noExplicitAny: a test reads what it expects and fails where it is not there
export type Answer = { status: number; headers: Headers; text: string; json: any };

export type ServerOptions = {
  engine?: Engine;
  database?: Database;
  settings?: Partial<QueueSettings>;
  /** LISTEN and sweep in the background; off by default, so that tests decide when what happens. */
  background?: boolean;
  /** The application that owns the sessions. */
  sessionsUpstreamUrl?: string;
  /** Where the app logs to; nowhere by default. */
  logger?: FastifyBaseLogger;
  streaming?: AppOptions['streaming'];
  corsOrigins?: readonly string[];
  /** Of one caller; any number by default. */
  requestsPerSecondMax?: number;
  /** Figures are not kept by default. */
  statsKeptMs?: number;
};

/** A listening server of the test's own, wired as `main.ts` wires it, with one environment and its key. */
export async function testServer(t: Test, options: ServerOptions = {}): Promise<Server> {
  const database = options.database ?? (await testDatabase(t, options.engine));
  const queue = createQueue({ database, ...(options.settings === undefined ? {} : { settings: options.settings }) });
  if (options.background) queue.start();
  const callers = createCallers({ database, operatorKey: OPERATOR_KEY });
  let url = '';
  const app = buildApp({
    queue,
    database,
    callers,
    publicUrl: () => url,
    sessionsUpstreamUrl: options.sessionsUpstreamUrl,
    statsKeptMs: options.statsKeptMs ?? 0,
    requestsPerSecondMax: options.requestsPerSecondMax ?? 0,
    ...(options.logger === undefined ? {} : { logger: options.logger }),
    ...(options.corsOrigins === undefined ? {} : { corsOrigins: options.corsOrigins }),
    ...(options.streaming === undefined ? {} : { streaming: options.streaming }),
  });
  url = await app.listen({ host: '127.0.0.1', port: 0 });
  t.teardown(async () => {
    void app.drain();
    queue.stopWaiting();
    app.server.closeAllConnections();
    await app.close();
    await callers.close();
    await queue.close();
  });
  const environment = await createEnvironment(database, {
    name: `test ${randomBytes(6).toString('hex')}`,
    type: 'self_hosted',
  });
  const { key: environmentKey } = await issueKey(database, { environmentId: environment.id, name: 'workers' });

  const call = caller(url, environmentKey);
  return {
    database,
    queue,
    app,
    url,
    environment,
    environmentKey,
    call,
    work: (path = '') => `/v1/environments/${environment.id}/work${path}`,
    async enqueue(sessionId, metadata) {
      const request = { environmentId: environment.id, sessionId, ...(metadata === undefined ? {} : { metadata }) };
      return (await queue.enqueue(request)).item.id;
    },
  };
}

/** One request over real HTTP, as `key` unless told otherwise. */
export function caller(url: string, key: string | null = null): Server['call'] {
  return async (method, path, { as = key, headers = {}, body, raw, signal } = {}) => {
    const response = await fetch(`${url}${path}`, {
      method,
      headers: {
        ...(as === null ? {} : { authorization: `Bearer ${as}` }),
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
        ...headers,
      },
      ...(body === undefined && raw === undefined ? {} : { body: raw ?? JSON.stringify(body) }),
      ...(signal === undefined ? {} : { signal }),
    });
    const text = await response.text();
    return {
      status: response.status,
      headers: response.headers,
      text,
      json: text === '' ? undefined : JSON.parse(text),
    };
  };
}

/** A whole row of `work_items` as text columns, to be compared before and after. */
export async function rowOf(database: Database, id: string): Promise<Record<string, string | null>> {
  const { workItems } = database.names;
  const [row] = await database.rows(
    sql<{ row: string }>`select to_jsonb(w)::text as row from ${workItems} w where w.id = ${id}`,
  );
  if (row === undefined) throw new Error(`no row ${id}`);
  return JSON.parse(row.row);
}

/** Moves an item's lease into the past: tests move rows, not clocks (design §3). */
export async function lapse(database: Database, id: string, seconds = 1): Promise<void> {
  const { workItems } = database.names;
  await database.rows(sql`
    update ${workItems} set lease_expires_at = clock_timestamp() - ${seconds} * interval '1 second' where id = ${id}`);
}

/**
 * For what does happen, however busy the machine is with other tests: it costs nothing where it happens. The mutation runner, which
 * waits in vain all the time, says less.
 */
export const PATIENCE_MS = Number(process.env.TEST_PATIENCE_MS ?? 60_000);

/** Waits for a condition, within a bound; fails loudly after it. */
export async function until(
  what: string,
  condition: () => boolean | Promise<boolean>,
  ms = PATIENCE_MS,
): Promise<void> {
  const end = performance.now() + ms;
  while (!(await condition())) {
    if (performance.now() > end) throw new Error(`waited ${ms} ms in vain for: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

/** A connection of the test's own, to hold locks and transactions with. Closed at the end. */
export async function testClient(t: Test): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: databaseUrl() });
  client.on('error', () => {});
  await client.connect();
  t.teardown(() => client.end());
  return client;
}

/** Waits until some statement of ours waits for a lock: the interleaving is then forced, not hoped for. */
export async function untilBlocked(client: pg.Client, schema: string, count = 1): Promise<void> {
  await until(`${count} statements blocked by a lock`, async () => {
    // By what it has locked: of a long statement only the beginning is shown, which need not name the schema.
    const { rows } = await client.query(
      `select count(*)::int as n from pg_stat_activity a where a.wait_event_type = 'Lock' and exists (
        select from pg_locks l join pg_class c on c.oid = l.relation join pg_namespace n on n.oid = c.relnamespace
        where l.pid = a.pid and n.nspname = $1)`,
      [schema],
    );
    return rows[0].n >= count;
  });
}
