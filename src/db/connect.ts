import { join } from 'node:path';
import { Kysely, type Transaction as KyselyTransaction, PGliteDialect, PostgresDialect } from 'kysely';
import pg from 'pg';
import { PoolClient, PreparingClient } from './client.ts';
import { DatabaseUnavailable, isUnavailable } from './failures.ts';
import { type Listen, listenOnPglite, listenOnPostgres } from './listen.ts';
import { lockFolder } from './lock-folder.ts';
import { type Statement, type TableNames, tableNames } from './sql.ts';
import type { Tables } from './tables.ts';

/**
 * A transaction of the caller's, in which a statement of ours is to run: Kysely's, or anything with pg's
 * `query(text, values)`. It is neither committed nor rolled back here.
 */
export type CallerTransaction =
  // biome-ignore lint/suspicious/noExplicitAny: the caller's own database type does not concern us
  KyselyTransaction<any> | { query(text: string, values: unknown[]): Promise<{ rows: unknown[] }> };

/**
 * A transaction that we open: the names in it are the caller's, found by the search path. `database.kysely` qualifies them by our
 * schema, and is for our own tables.
 */
// biome-ignore lint/suspicious/noExplicitAny: the caller's own database type does not concern us
export type QueueTransaction = KyselyTransaction<any>;

export type Database = {
  readonly engine: 'postgres' | 'pglite';
  readonly schema: string;
  readonly names: TableNames;
  /** True where statements run in a transaction that is somebody else's to commit (see `within`). */
  readonly isTransaction: boolean;
  /** The builder, for statements of one table and one verb; every name is qualified by the schema. */
  readonly kysely: Kysely<Tables>;
  /** Runs one statement. Throws DatabaseUnavailable when the database could not be reached or gave up (our own pool only). */
  rows<Row>(statement: Statement<Row>, transaction?: CallerTransaction): Promise<Row[]>;
  /** Runs several, all or nothing, at READ COMMITTED. For what no single statement can do; nothing is waited for in between. */
  transaction<Result>(run: (transaction: CallerTransaction) => Promise<Result>): Promise<Result>;
  /** The same database through a few connections of its own: what reads much cannot hold up what workers wait for. */
  readonly aside: Database;
  /** The channel that wakes waiting polls: NOTIFY is per database, so the schema is part of the name. */
  readonly channel: string;
  readonly listen: Listen;
  close(): Promise<void>;
};

export type DatabaseOptions = {
  /** Postgres 14+. Without it, or empty, the database is PGlite, in `dataDir`. */
  connectionString?: string | undefined;
  /** A direct connection for LISTEN when `connectionString` leads through a transaction pooler. */
  listenConnectionString?: string | undefined;
  /** PGlite's folder; `memory://` keeps nothing. */
  dataDir?: string;
  schema?: string;
  poolConnectionsMax?: number;
  /** Of the pool that lists, figures and the control plane have to themselves. */
  asideConnectionsMax?: number;
  statementTimeoutMs?: number;
  lockTimeoutMs?: number;
  /** Told of faults nobody waits for: an idle connection that broke, a LISTEN client that had to come back. */
  onFault?: (error: unknown, what: string) => void;
};

/** A `dataDir` that keeps nothing. */
export const IN_MEMORY = 'memory://';
const CONNECT_TIMEOUT_MS = 5_000;
/** Past its statement timeout a server is given this long to say so; then the connection counts as lost. */
const SILENCE_MS = 1_000;
/**
 * Named statements keep the plans that they got while a table was empty, when reading it whole is the best that there is. Each of ours has its index;
 * and none runs for so long that compiling it would pay.
 */
const PLANNING = 'set enable_seqscan = off; set jit = off';
/** Also a channel name and part of both engines' LISTEN without quoting. */
const SCHEMA_NAME = /^[a-z_][a-z0-9_]{0,49}$/;

/** Opens the database. Postgres connects lazily; PGlite is started here. Whoever opens closes. */
export async function openDatabase(options: DatabaseOptions): Promise<Database> {
  const schema = options.schema ?? 'leasehold';
  if (!SCHEMA_NAME.test(schema)) throw new Error(`schema must match ${SCHEMA_NAME}, got ${JSON.stringify(schema)}`);
  const channel = `${schema}_work`;
  const onFault = options.onFault ?? (() => {});
  const engine = options.connectionString ? openPostgres(options, onFault) : await openPglite(options);
  const shared = { engine: engine.name, schema, names: tableNames(schema), isTransaction: false, channel } as const;
  const listen: Listen = (handlers) => engine.listen(channel, handlers);
  const through = (kysely: Kysely<Tables>) => ({
    kysely: kysely.withSchema(schema),
    async rows<Row>(statement: Statement<Row>, transaction?: CallerTransaction): Promise<Row[]> {
      // Of ours, only a builder's statement leaves names to be qualified, and it brings the plugin that does it.
      const compiled = statement.compile(kysely);
      if (transaction === undefined) return (await kysely.executeQuery(compiled).catch(rethrow)).rows;
      if ('executeQuery' in transaction) {
        // The caller's plugins may rewrite names and results; these are ours.
        return (await transaction.withoutPlugins().executeQuery<Row>(compiled)).rows;
      }
      return (await transaction.query(compiled.sql, [...compiled.parameters])).rows as Row[];
    },
    transaction: <Result>(run: (transaction: CallerTransaction) => Promise<Result>) =>
      kysely.transaction().execute(run).catch(rethrow),
  });
  const aside: Database = {
    ...shared,
    ...through(engine.aside),
    listen,
    close: engine.close,
    get aside() {
      return aside;
    },
  };
  return { ...shared, ...through(engine.kysely), listen, aside, close: engine.close };
}

/**
 * The same database, its statements in a transaction of the caller's unless they name another: what a verb writes commits
 * with the rest of it. It is neither committed nor rolled back here.
 */
export function within(database: Database, transaction: CallerTransaction): Database {
  const bound: Database = {
    ...database,
    isTransaction: true,
    rows: (statement, other = transaction) => database.rows(statement, other),
    transaction: (run) => run(transaction),
    get aside() {
      return bound;
    },
  };
  return bound;
}

function rethrow(error: unknown): never {
  throw isUnavailable(error) ? new DatabaseUnavailable(error) : error;
}

type Engine = {
  name: Database['engine'];
  kysely: Kysely<Tables>;
  aside: Kysely<Tables>;
  listen(channel: string, handlers: Parameters<Listen>[0]): ReturnType<Listen>;
  close(): Promise<void>;
};

function openPostgres(options: DatabaseOptions, onFault: (error: unknown, what: string) => void): Engine {
  const statementTimeoutMs = options.statementTimeoutMs ?? 10_000;
  // A listen URL of its own says that this one leads through a transaction pooler: that may not carry named statements over, and
  // refuses settings at connect.
  const session =
    options.listenConnectionString === undefined
      ? {
          Client: PreparingClient,
          statement_timeout: statementTimeoutMs,
          lock_timeout: options.lockTimeoutMs ?? 5_000,
          idle_in_transaction_session_timeout: 30_000,
        }
      : { Client: PoolClient };
  const open = (max: number) => {
    const pool = new pg.Pool({
      ...session,
      connectionString: options.connectionString,
      max,
      connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
      query_timeout: statementTimeoutMs + SILENCE_MS,
      application_name: 'leasehold',
      keepAlive: true,
      keepAliveInitialDelayMillis: 10_000,
    });
    // Without these listeners a killed backend ends the process (traps: Kysely and pg).
    pool.on('error', (error) => {
      // The pool hangs its client on it: the backend's secret, the host, every prepared statement. Not for a log.
      if ('client' in error) delete error.client;
      onFault(error, 'an idle database connection broke');
    });
    pool.on('connect', (client) => {
      client.on('error', (error) => onFault(error, 'a database connection broke'));
      if (session.Client === PreparingClient) client.query(PLANNING).catch(() => {}); // whoever is to use it is told
    });
    const kysely = new Kysely<Tables>({ dialect: new PostgresDialect({ pool }) });
    const close = async () => {
      if (pool.ending) return;
      await kysely.destroy();
      if (!pool.ending) await pool.end(); // Kysely closes only what it has used
    };
    return { kysely, close };
  };
  const [main, aside] = [open(options.poolConnectionsMax ?? 16), open(options.asideConnectionsMax ?? 4)];
  return {
    name: 'postgres',
    kysely: main.kysely,
    aside: aside.kysely,
    listen: (channel, handlers) =>
      listenOnPostgres(options.listenConnectionString ?? options.connectionString ?? '', channel, handlers, onFault),
    close: async () => void (await Promise.all([main.close(), aside.close()])),
  };
}

async function openPglite(options: DatabaseOptions): Promise<Engine> {
  const dataDir = options.dataDir ?? IN_MEMORY;
  const unlock = dataDir === IN_MEMORY ? undefined : lockFolder(dataDir);
  try {
    const { PGlite } = await import('@electric-sql/pglite');
    const pglite = await PGlite.create(dataDir === IN_MEMORY ? IN_MEMORY : join(dataDir, 'pglite'));
    const kysely = new Kysely<Tables>({ dialect: new PGliteDialect({ pglite }) });
    return {
      name: 'pglite',
      kysely,
      aside: kysely,
      listen: (channel, handlers) => listenOnPglite(pglite, channel, handlers),
      async close() {
        await kysely.destroy();
        // Kysely closes only what it has used.
        if (!pglite.closed) await pglite.close();
        unlock?.();
      },
    };
  } catch (error) {
    unlock?.();
    throw error;
  }
}
