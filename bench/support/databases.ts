import { sql } from 'kysely';
import { type Database, openDatabase } from '../../src/db/connect.ts';
import { startPostgres } from '../../test/support/postgres.ts';
import { closing } from './closing.ts';

/** For statements that fill tables. */
const STATEMENT_MS_MAX = 600_000;
const CONNECTIONS_MAX = 2;

/** A Postgres of the bench's own, with default durability. */
export type Postgres = AsyncDisposable & {
  /** Of its first process, whose children are the others. */
  readonly pid: number;
  /** An empty database; answers its URL. */
  create(name: string): Promise<string>;
  /** Connections to it for the bench's own statements, until this Postgres is stopped. */
  open(name: string): Promise<Database>;
  readonly version: string;
};

export async function startDatabases(settings: readonly string[] = []): Promise<Postgres> {
  const server = await startPostgres(settings);
  const stop = closing(async () => {
    await Promise.all(opened.map((database) => database.close()));
    await server.stop();
  });
  const urlOf = (name: string) => Object.assign(new URL(server.url), { pathname: `/${name}` }).href;
  const opened: Database[] = [];
  const open = async (name: string) => {
    const settings = { poolConnectionsMax: CONNECTIONS_MAX, statementTimeoutMs: STATEMENT_MS_MAX };
    const database = await openDatabase({ connectionString: urlOf(name), ...settings });
    opened.push(database);
    return database;
  };
  const first = await open('postgres');
  const [told] = await first.rows(sql<{ pid: number; version: string; isDurable: boolean }>`
    select split_part(pg_read_file('postmaster.pid'), E'\n', 1)::integer as pid, current_setting('server_version') as version,
      current_setting('fsync') = 'on' and current_setting('synchronous_commit') = 'on' as "isDurable"`);
  if (!told?.isDurable) throw new Error('a Postgres that does not keep what it commits is not to be measured');
  return {
    pid: told.pid,
    version: told.version,
    async create(name) {
      await first.rows(sql`create database ${sql.id(name)}`);
      return urlOf(name);
    },
    open,
    [Symbol.asyncDispose]: stop,
  };
}
