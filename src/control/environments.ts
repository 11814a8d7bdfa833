import { type RawBuilder, sql } from 'kysely';
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
  const { environments } = database.names;
  const [row] = await database.rows(sql<Row>`
    insert into ${environments} as e (id, name, description, type, metadata)
    values (${mintId('env')}, ${environment.name}, ${environment.description ?? null}, ${environment.type},
      ${JSON.stringify(environment.metadata ?? {})}::jsonb)
    on conflict (name) where archived_at is null do nothing
    returning ${columns(sql`e`)}`);
  if (row === undefined) {
    throw new QueueError('conflict', `name: an environment called ${JSON.stringify(environment.name)} exists already`);
  }
  return toEnvironment(row);
}

/** Refuses: environment_not_found. */
export async function retrieveEnvironment(database: Database, id: string): Promise<Environment> {
  const { environments } = database.names;
  const [row] = await database.rows(sql<Row>`select ${columns(sql`e`)} from ${environments} e where e.id = ${id}`);
  if (row === undefined) throw new QueueError('environment_not_found', `environment ${id} was not found`);
  return toEnvironment(row);
}

const columns = (e: RawBuilder<unknown>): RawBuilder<unknown> => sql`${e}.id, ${e}.name, ${e}.description, ${e}.type,
  ${e}.metadata::text as metadata, ${rfc3339(sql`${e}.created_at`)} as "createdAt",
  ${rfc3339(sql`${e}.updated_at`)} as "updatedAt", ${rfc3339(sql`${e}.archived_at`)} as "archivedAt"`;

const toEnvironment = (row: Row): Environment => ({ ...row, metadata: JSON.parse(row.metadata) });
