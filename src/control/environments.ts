import { sql } from 'kysely';
import type { Database } from '../db/connect.ts';
import { rfc3339 } from '../db/sql.ts';
import type { EnvironmentType } from '../db/tables.ts';
import { QueueError } from '../queue/errors.ts';
import { mintId } from '../queue/ids.ts';
import { checkMetadata, checkText, LIMITS } from '../queue/limits.ts';

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
  readonly description?: string | null;
  readonly metadata?: Readonly<Record<string, string>>;
};

type Row = Omit<Environment, 'metadata'> & { metadata: string };

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
      .returning(COLUMNS),
  );
  if (row === undefined) {
    throw new QueueError('conflict', `name: an environment called ${JSON.stringify(environment.name)} exists already`);
  }
  return toEnvironment(row);
}

/** Refuses: environment_not_found. */
export async function retrieveEnvironment(database: Database, id: string): Promise<Environment> {
  checkText('id', id, LIMITS.idCharacters);
  const [row] = await database.rows(database.kysely.selectFrom('environments').select(COLUMNS).where('id', '=', id));
  if (row === undefined) throw new QueueError('environment_not_found', `environment ${id} was not found`);
  return toEnvironment(row);
}

const COLUMNS = [
  'id',
  'name',
  'description',
  'type',
  sql<string>`metadata::text`.as('metadata'),
  rfc3339(sql.ref('created_at')).as('createdAt'),
  rfc3339(sql.ref('updated_at')).as('updatedAt'),
  sql<string | null>`${rfc3339(sql.ref('archived_at'))}`.as('archivedAt'),
] as const;

const toEnvironment = (row: Row): Environment => ({ ...row, metadata: JSON.parse(row.metadata) });
