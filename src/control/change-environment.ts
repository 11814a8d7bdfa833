import { sql } from 'kysely';
import type { Database } from '../db/connect.ts';
import { isUniqueViolation } from '../db/failures.ts';
import { rfc3339 } from '../db/sql.ts';
import type { EnvironmentType } from '../db/tables.ts';
import { environmentNotFound, QueueError } from '../queue/errors.ts';
import { checkText, invalidMetadata, LIMITS, tooManyPairs } from '../queue/limits.ts';
import { mergedMetadata, readPatch } from '../queue/metadata.ts';
import {
  ENVIRONMENT_COLUMNS,
  type Environment,
  type EnvironmentRow,
  nameTaken,
  toEnvironment,
} from './environments.ts';
import { changeStamp } from './key-rows.ts';

/** What is undefined keeps its value. */
export type EnvironmentChange = {
  readonly name?: string | undefined;
  /** Null clears. */
  readonly description?: string | null | undefined;
  /** The type that it has: it cannot be changed. */
  readonly type?: EnvironmentType | undefined;
  /** Null or "" deletes a key. */
  readonly metadata?: Readonly<Record<string, string | null>> | undefined;
};

/**
 * Changes an environment, all or nothing. Refuses: environment_not_found, environment_archived, invalid_config_type_change,
 * conflict when a live environment has the name, invalid_request, invalid_metadata (checked on the merged result).
 */
export async function updateEnvironment(
  database: Database,
  id: string,
  change: EnvironmentChange,
): Promise<Environment> {
  checkText('id', id, LIMITS.idCharacters);
  const { name, description, type, metadata = {} } = change;
  if (name !== undefined) checkText('name', name, LIMITS.nameCharacters);
  if (description) checkText('description', description, LIMITS.descriptionCharacters);
  const { problems, ...changes } = readPatch(metadata, (value) => value === null || value === '');
  if (problems.length > 0) throw invalidMetadata(problems);

  const { environments } = database.names;
  const statement = sql<Outcome>`
    with current as materialized (
      select e.id, e.type, e.archived_at, ${mergedMetadata('e', changes)} as merged
      from ${environments} e where e.id = ${id} for update
    ), counted as materialized (
      select c.id, c.type, c.archived_at, c.merged, (select count(*) from jsonb_object_keys(c.merged))::integer as pairs
      from current c
    ), changed as (
      update ${environments} e
      set name = coalesce(${name ?? null}, e.name), metadata = c.merged, updated_at = clock_timestamp(),
        description = case when ${description !== undefined} then ${description ?? null} else e.description end
      from counted c
      where e.id = c.id and c.archived_at is null and c.pairs <= ${LIMITS.metadataPairs}
        and (${type ?? null}::text is null or c.type = ${type ?? null})
      returning e.id, e.name, e.description, e.type, e.metadata, e.created_at, e.updated_at, e.archived_at
    )
    select c.pairs, c.archived_at is not null as "isArchived", c.type as "currentType", n.id, n.name, n.description, n.type,
      n.metadata::text as metadata, ${rfc3339(sql`n.created_at`)} as "createdAt",
      ${rfc3339(sql`n.updated_at`)} as "updatedAt", ${rfc3339(sql`n.archived_at`)} as "archivedAt"
    from counted c left join changed n on n.id = c.id`;
  const [row] = await database.rows(statement).catch((error: unknown) => {
    throw isUniqueViolation(error) ? nameTaken(name ?? '') : error;
  });
  if (row === undefined) throw environmentNotFound(id);
  if (row.id !== null) return toEnvironment({ ...row, id: row.id });
  if (row.isArchived)
    throw new QueueError('environment_archived', `environment ${id} is archived: it cannot be changed`);
  if (row.pairs > LIMITS.metadataPairs) throw invalidMetadata([tooManyPairs(row.pairs)]);
  throw new QueueError('invalid_config_type_change', `config.type is ${row.currentType} and cannot be changed`);
}

type Outcome = { pairs: number; isArchived: boolean; currentType: EnvironmentType; id: string | null } & Omit<
  EnvironmentRow,
  'id'
>;

/**
 * Archives: workers go on polling, beating and stopping what is there; new work and changes are refused, and the name is free.
 * Once more changes nothing. Refuses: environment_not_found.
 */
export async function archiveEnvironment(database: Database, id: string): Promise<Environment> {
  checkText('id', id, LIMITS.idCharacters);
  const [row] = await database.rows(
    database.kysely
      .updateTable('environments')
      .set({ archived_at: sql`coalesce(archived_at, clock_timestamp())` })
      .where('id', '=', id)
      .returning(ENVIRONMENT_COLUMNS),
  );
  if (row === undefined) throw environmentNotFound(id);
  return toEnvironment(row);
}

/** Finished items are removed in steps, so that none runs into the statement timeout. */
const FINISHED_PER_STATEMENT_MAX = 5_000;
const SESSIONS_PER_STATEMENT_MAX = 1_000;
const EVENTS_PER_STATEMENT_MAX = 5_000;

/**
 * Deletes an environment with its finished items and its sessions, and revokes its keys, all or nothing. Refuses: environment_not_found; conflict
 * while it has unfinished work.
 */
export async function deleteEnvironment(database: Database, id: string): Promise<void> {
  checkText('id', id, LIMITS.idCharacters);
  const { environments, workItems, credentials, sessions, sessionEvents } = database.names;
  await database.transaction(async (transaction) => {
    // An enqueue holds this row shared until it commits: it is over by now, or waits and finds the environment gone.
    const [found] = await database.rows(
      sql`select e.id from ${environments} e where e.id = ${id} for update`,
      transaction,
    );
    if (found === undefined) throw environmentNotFound(id);
    const [unfinished] = await database.rows(
      sql`select w.seq from ${workItems} w where w.environment_id = ${id} and w.state <> 'stopped' limit 1`,
      transaction,
    );
    if (unfinished !== undefined) {
      throw new QueueError('conflict', `environment ${id} has unfinished work: stop it first`);
    }
    const removal = sql`
      with finished as materialized (
        select w.seq from ${workItems} w where w.environment_id = ${id} limit ${sql.lit(FINISHED_PER_STATEMENT_MAX)}
      )
      delete from ${workItems} w using finished f where w.seq = f.seq returning w.seq`;
    while ((await database.rows(removal, transaction)).length > 0);
    // Not left to the sessions' cascade, which knows no steps; it takes what is appended meanwhile.
    const eventRemoval = sql`
      with told as materialized (
        select e.session_id, e.seq from ${sessions} s join ${sessionEvents} e on e.session_id = s.id
        where s.environment_id = ${id} limit ${sql.lit(EVENTS_PER_STATEMENT_MAX)}
      )
      delete from ${sessionEvents} e using told x where e.session_id = x.session_id and e.seq = x.seq returning e.seq`;
    while ((await database.rows(eventRemoval, transaction)).length > 0);
    const sessionRemoval = sql`
      with old as materialized (
        select s.id from ${sessions} s where s.environment_id = ${id} limit ${sql.lit(SESSIONS_PER_STATEMENT_MAX)}
      )
      delete from ${sessions} s using old o where s.id = o.id returning s.id`;
    while ((await database.rows(sessionRemoval, transaction)).length > 0);
    // Not deleted: what is gone could not be told to the replicas that trust it.
    await database.rows(
      sql`update ${credentials} c set revoked_at = clock_timestamp(), changed_at = ${changeStamp('c')}
        where c.environment_id = ${id} and c.revoked_at is null`,
      transaction,
    );
    await database.rows(sql`delete from ${environments} e where e.id = ${id}`, transaction);
  });
}
