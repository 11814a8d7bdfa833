import { sql } from 'kysely';
import type { Database } from '../db/connect.ts';
import { checkText, invalidMetadata, LIMITS, tooManyPairs } from '../queue/limits.ts';
import { type MetadataPatch, mergedMetadata, readPatch } from '../queue/metadata.ts';
import { type Session, type SessionRow, sessionAnswer, sessionNotFound, toSession } from './session.ts';

export type SessionChange = {
  /** Undefined keeps it, null clears it. */
  readonly title?: string | null | undefined;
  /** Merged: a null deletes, an omitted key is kept. */
  readonly metadata?: MetadataPatch | undefined;
};

/** Changes title and metadata, in whatever state the session is. Refuses: not_found, invalid_request, invalid_metadata on the merged result. */
export async function updateSession(
  database: Database,
  id: string,
  { title, metadata: patch = {} }: SessionChange,
): Promise<Session> {
  if (title !== undefined && title !== null) checkText('title', title, LIMITS.titleCharacters);
  const { problems, ...changes } = readPatch(patch);
  if (problems.length > 0) throw invalidMetadata(problems);
  const { sessions } = database.names;
  const [row] = await database.rows(sql<Omit<SessionRow, 'id'> & { id: string | null; pairs: string }>`
    with current as materialized (
      select s.id, ${mergedMetadata('s', changes)} as merged
      from ${sessions} s where s.id = ${id} for no key update
    ), counted as materialized (
      select c.id, c.merged, (select count(*) from jsonb_object_keys(c.merged)) as pairs from current c
    ), changed as (
      update ${sessions} s
      set metadata = c.merged, title = case when ${title !== undefined} then ${title ?? null}::text else s.title end,
        updated_at = clock_timestamp()
      from counted c where s.id = c.id and c.pairs <= ${LIMITS.metadataPairs}
      returning s.id, s.environment_id, s.title, s.metadata, s.agent, s.status, s.created_at, s.updated_at, s.archived_at
    )
    select c.pairs::text as pairs, ${sessionAnswer('n')} from counted c left join changed n on n.id = c.id`);
  if (row === undefined) throw sessionNotFound(id);
  if (row.id === null) throw invalidMetadata([tooManyPairs(Number(row.pairs))]);
  const { pairs: _, ...session } = row;
  return toSession({ ...session, id: row.id });
}
