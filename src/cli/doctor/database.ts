import { sql } from 'kysely';
import type { Config } from '../../config.ts';
import { type Database, openDatabase } from '../../db/connect.ts';
import { schemaStatus } from '../../db/migrate.ts';
import { clockCheck, offsetOf } from './clock.ts';
import { type Check, fail, ok, saying, skip, warn } from './check.ts';
import type { Examined } from './server.ts';

/** What no server listens on: its name is that of a schema, which need not be there. */
const DOCTORS = 'leasehold_doctor';
const NOTIFIED_MS_MAX = 5_000;
const POSTGRES_MIN = 140_000;

/** The database of DATABASE_URL, as this machine sees it: whether it is there, new enough, migrated, and its notifications come through. */
export async function* examineDatabase(config: Config | undefined, server: Examined): AsyncGenerator<Check> {
  const name = 'database';
  if (config?.databaseUrl === undefined) {
    yield skip(name, config === undefined ? 'the configuration comes first' : 'DATABASE_URL is not set');
    return;
  }
  const connection = { connectionString: config.databaseUrl, poolConnectionsMax: 2, asideConnectionsMax: 1 };
  const database = await openDatabase(connection);
  try {
    const startedAt = Date.now();
    const statement = sql<{ version: string; number: number; nowMs: number }>`
      select current_setting('server_version') as version, current_setting('server_version_num')::integer as number,
        (extract(epoch from clock_timestamp()) * 1000)::double precision as "nowMs"`;
    const [found] = await database.rows(statement);
    if (found === undefined) return;
    const clock = offsetOf(found.nowMs, startedAt, Date.now());
    if (found.number < POSTGRES_MIN) {
      yield fail(name, `Postgres ${found.version} is too old`, 'Leasehold needs Postgres 14 or later');
      return;
    }
    yield ok(name, `reached, Postgres ${found.version}`);
    yield clockCheck('database clock', clock);
    if (server.clock !== undefined) {
      const aheadMs = server.clock.aheadMs - clock.aheadMs;
      yield clockCheck('server and database clocks', { aheadMs, unsureMs: server.clock.unsureMs + clock.unsureMs });
    }
    yield await migrations(database);
    yield await notifications(config.databaseUrl, config.listenDatabaseUrl);
  } catch (error) {
    yield fail(name, saying(error), 'see to DATABASE_URL: host, port, user, password, and name of the database');
  } finally {
    await database.close();
  }
}

async function migrations(database: Database): Promise<Check> {
  const name = 'migrations';
  switch (await schemaStatus(database)) {
    case 'current':
      return ok(name, 'all are applied');
    case 'older':
      return fail(name, 'some are missing', 'leasehold migrate, or start a server of this version');
    case 'newer':
      return warn(name, 'a later version has migrated this database', 'use that version here, too');
  }
}

/** From one connection to another, as an enqueue wakes the polls of other replicas. */
async function notifications(connectionString: string, listenConnectionString: string | undefined): Promise<Check> {
  const name = 'notifications';
  let fault: unknown;
  const onFault = (error: unknown) => {
    fault = error;
  };
  const database = await openDatabase({ connectionString, listenConnectionString, schema: DOCTORS, onFault });
  const payload = crypto.randomUUID();
  const heard = Promise.withResolvers<number>();
  let sentAt = 0;
  const listener = database.listen({
    onListening() {
      sentAt = performance.now();
      database.rows(sql`select pg_notify(${database.channel}, ${payload})`).catch(onFault);
    },
    onNotification: (told) => told === payload && heard.resolve(performance.now() - sentAt),
  });
  const timer = setTimeout(() => heard.reject(fault ?? new Error('none came')), NOTIFIED_MS_MAX);
  try {
    return ok(name, `came through in ${Math.ceil(await heard.promise)} ms`);
  } catch (error) {
    const remedy =
      'where DATABASE_URL leads through a transaction pooler, LISTEN_DATABASE_URL must be a direct connection';
    return fail(name, `${saying(error)}, within ${NOTIFIED_MS_MAX / 1_000} s`, remedy);
  } finally {
    clearTimeout(timer);
    await listener.close();
    await database.close();
  }
}
