import { sql } from 'kysely';
import type { Database } from '../db/connect.ts';
import { rfc3339 } from '../db/sql.ts';
import type { EnvironmentType } from '../db/tables.ts';
import { parseCursor, toPage } from '../queue/cursor.ts';
import { environmentNotFound, QueueError } from '../queue/errors.ts';
import { mintId } from '../queue/ids.ts';
import { checkInteger, checkMetadata, checkText, LIMITS } from '../queue/limits.ts';

export type Environment = {
  readonly id: string;
  readonly name: string;
  readonly description: string | null;
  readonly type: EnvironmentType;
  readonly metadata: Readonly<Record<string, string>>;
  readonly createdAt: string;
  readonly updatedAt: string;
  readonly archivedAt: string | null;
};

export type NewEnvironment = {
  /** 1 to 128 characters, unique among those not archived. */
  readonly name: string;
  readonly type: EnvironmentType;
  /** At most 2048 characters. */
  readonly description?: string | null;
  readonly metadata?: Readonly<Record<string, string>>;
};

/** Refuses: conflict when a live environment has the name; invalid_request; invalid_metadata. */
export async function createEnvironment(database: Database, environment: NewEnvironment): Promise<Environment> {
  checkText('name', environment.name, LIMITS.nameCharacters);
  if (environment.description) checkText('description', environment.description, LIMITS.descriptionCharacters);
  checkMetadata(environment.metadata ?? {});
  const [row] = await database.rows(
    database.kysely
      .insertInto('environments')
      .values({
        id: mintId('env'),
        name: environment.name,
        description: environment.description ?? null,
        type: environment.type,
        metadata: JSON.stringify(environment.metadata ?? {}),
      })
      .onConflict((live) => live.column('name').where('archived_at', 'is', null).doNothing())
      .returning(ENVIRONMENT_COLUMNS),
  );
  if (row === undefined) throw nameTaken(environment.name);
  return toEnvironment(row);
}

/** Refuses: environment_not_found. */
export async function retrieveEnvironment(database: Database, id: string): Promise<Environment> {
  checkText('id', id, LIMITS.idCharacters);
  const [row] = await database.rows(
    database.kysely.selectFrom('environments').select(ENVIRONMENT_COLUMNS).where('id', '=', id),
  );
  if (row === undefined) throw environmentNotFound(id);
  return toEnvironment(row);
}

export type EnvironmentPage = { readonly items: readonly Environment[]; readonly nextPage: string | null };

/** A page, newest first. `limit` 1 to 1000. Refuses: invalid_request for a cursor that no page gave out. */
export async function listEnvironments(
  database: Database,
  { limit, page, includeArchived }: { limit: number; page?: string | undefined; includeArchived: boolean },
): Promise<EnvironmentPage> {
  checkInteger('limit', limit, 1, LIMITS.pageItems);
  const after = page === undefined ? undefined : parseCursor(page, /^env_[A-Za-z0-9_-]{1,64}$/);
  const rows = await database.rows(
    database.kysely
      .selectFrom('environments')
      .select(ENVIRONMENT_COLUMNS)
      .$if(!includeArchived, (query) => query.where('archived_at', 'is', null))
      .$if(after !== undefined, (query) =>
        query.where(sql<boolean>`(created_at, id) < (${after?.createdAt}::timestamptz, ${after?.key}::text)`),
      )
      .orderBy('created_at', 'desc')
      .orderBy('id', 'desc')
      .limit(limit + 1),
  );
  return toPage(rows.map(toEnvironment), limit, ({ createdAt, id }) => ({ createdAt, key: id }));
}

export const ENVIRONMENT_COLUMNS = [
  'id',
  'name',
  'description',
  'type',
  sql<string>`metadata::text`.as('metadata'),
  rfc3339(sql.ref('created_at')).as('createdAt'),
  rfc3339(sql.ref('updated_at')).as('updatedAt'),
  sql<string | null>`${rfc3339(sql.ref('archived_at'))}`.as('archivedAt'),
] as const;

export type EnvironmentRow = Omit<Environment, 'metadata'> & { readonly metadata: string };

export const toEnvironment = (row: EnvironmentRow): Environment => ({ ...row, metadata: JSON.parse(row.metadata) });

export const nameTaken = (name: string): QueueError =>
  new QueueError('conflict', `name: an environment called ${JSON.stringify(name)} exists already`);
