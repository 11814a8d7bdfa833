import { type DatabaseIntrospector, sql } from 'kysely';
import { Migrator } from 'kysely/migration';
import { MIGRATIONS } from '../../migrations/index.ts';
import type { Database } from './connect.ts';
import { isDeadlock } from './failures.ts';

const TABLE = 'migrations';
/** How often a replica waits for another one's migration, or for what runs, a lock timeout each: a minute in all. */
const TURNS_MAX = 12;
const LOCK_TIMEOUT = '55P03';

type Migrations = Readonly<Record<string, (typeof MIGRATIONS)[keyof typeof MIGRATIONS]>>;

/** Brings the schema to this version; answers what it applied. Replicas that start together take turns (Kysely's advisory lock). */
export async function migrate(database: Database, migrations: Migrations = MIGRATIONS): Promise<readonly string[]> {
  if ((await schemaStatus(database)) !== 'older') return [];
  const migrator = new Migrator({
    db: Object.defineProperty(database.kysely.withTables(), 'introspection', { value: introspectorOf(database) }),
    provider: {
      async getMigrations() {
        return Object.fromEntries(
          Object.entries(migrations).map(([name, { up }]) => [name, { up: up(database.schema) }]),
        );
      },
    },
    migrationTableName: TABLE,
    migrationLockTableName: `${TABLE}_lock`,
    migrationTableSchema: database.schema,
  });
  for (let turns = TURNS_MAX; ; turns--) {
    const { error, results = [] } = await migrator.migrateToLatest();
    if (error === undefined) return results.map(({ migrationName }) => migrationName);
    // Replicas that go on serving lock the tables in another order than a migration does: it is undone whole, and tried again.
    const isWaiting = error instanceof Error && 'code' in error && error.code === LOCK_TIMEOUT;
    if (!(isWaiting || isDeadlock(error)) || turns === 1) throw error;
  }
}

/**
 * What the migrator asks, about our schema alone. Kysely's own reads every table of the database, slowly where an application
 * has thousands, and fails when one of them is dropped meanwhile.
 */
function introspectorOf(database: Database): DatabaseIntrospector {
  const { schema } = database;
  return {
    getSchemas: () =>
      database.rows(
        sql<{ name: string }>`select nspname as name from pg_catalog.pg_namespace where nspname = ${schema}`,
      ),
    async getTables() {
      const tables = await database.rows(
        sql<{ name: string }>`select tablename as name from pg_catalog.pg_tables where schemaname = ${schema}`,
      );
      return tables.map(({ name }) => ({ name, schema, isView: false, isForeign: false, columns: [] }));
    },
  };
}

/**
 * `current`; `older` when migrations are missing; `newer` when a later version has migrated already: migrations only
 * ever expand what an older replica uses, so it goes on serving.
 */
export async function schemaStatus(database: Database): Promise<'current' | 'older' | 'newer'> {
  const [found] = await database.rows(
    sql<{ exists: boolean }>`select to_regclass(${`${database.schema}.${TABLE}`}) is not null as exists`,
  );
  if (!found?.exists) return 'older';
  const applied = new Set(
    (await database.rows(sql<{ name: string }>`select name from ${sql.id(database.schema, TABLE)}`)).map(
      (row) => row.name,
    ),
  );
  const known = Object.keys(MIGRATIONS);
  if (known.some((name) => !applied.has(name))) return 'older';
  return applied.size > known.length ? 'newer' : 'current';
}
