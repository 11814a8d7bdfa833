import { type RawBuilder, sql } from 'kysely';
import type { Database } from '../db/connect.ts';
import {
  type ItemRow,
  itemAnswer,
  itemSource,
  notFound,
  presentId,
  toWorkItem,
  type WorkItem,
  type WorkRef,
} from './items.ts';
import { invalidMetadata, isRecord, isStorable, LIMITS, metadataProblems, tooManyPairs } from './limits.ts';

/**
 * Merges a patch into an item's metadata: a null deletes, "" is a value, an omitted key is kept. Two patches at once never
 * lose each other's keys: the merge is the database's, on the locked row. Any state may be patched.
 * Refuses: not_found; invalid_metadata, checked on the merged result and listing every problem (contract §7).
 */
export async function patchMetadata(
  database: Database,
  { environmentId, id }: WorkRef,
  patch: MetadataPatch,
): Promise<WorkItem> {
  const merged = await mergeMetadata(
    database,
    sql`w.id = ${id} and w.environment_id = ${environmentId} and w.lane = 'wire'`,
    patch,
    presentId(database.names, sql`${environmentId}`, sql`${id}`),
  );
  if ('presentId' in merged) throw notFound(id, merged.presentId);
  return merged;
}

export type MetadataPatch = Readonly<Record<string, string | null>>;

type ReadPatch = { readonly deletes: readonly string[]; readonly sets: Readonly<Record<string, unknown>> };

/** What a patch deletes, sets, and what is wrong with that in itself. */
export function readPatch(
  patch: MetadataPatch,
  isDelete: (value: string | null) => boolean = (value) => value === null,
): ReadPatch & { readonly problems: string[] } {
  const deletes = Object.keys(patch).filter((key) => isDelete(patch[key] ?? null) && isStorable(key)); // others cannot be there
  const sets = Object.fromEntries(Object.entries(patch).filter(([, value]) => !isDelete(value)));
  return { deletes, sets, problems: metadataProblems(sets) };
}

/** A row's metadata with the patch merged in. */
export const mergedMetadata = (alias: string, { deletes, sets }: ReadPatch): RawBuilder<unknown> =>
  sql`(${sql.ref(`${alias}.metadata`)} - ${deletes}::text[]) || ${JSON.stringify(sets)}::jsonb`;

/**
 * The merge, on the one item that `where` tells of `w`. Without one: what it is called now, where `elsewhere` finds that. All text:
 * the connection may be a caller's. Refuses: invalid_metadata.
 */
export async function mergeMetadata(
  database: Database,
  where: RawBuilder<unknown>,
  patch: MetadataPatch,
  elsewhere: RawBuilder<unknown> = sql`null`,
): Promise<WorkItem | { readonly presentId: string | null }> {
  if (!isRecord(patch)) throw invalidMetadata(['metadata must be an object']);
  const { workItems } = database.names;
  const { deletes, sets, problems } = readPatch(patch);
  // What is wrong in itself never reaches SQL; the statement then only counts what the merge would make, by the keys.
  const merging =
    problems.length === 0
      ? sets
      : Object.fromEntries(
          Object.keys(sets)
            .filter(isStorable)
            .map((key) => [key, '']),
        );
  const [row] = await database.rows(sql<Row>`
    with current as materialized (
      select w.seq, ${mergedMetadata('w', { deletes, sets: merging })} as merged
      from ${workItems} w where ${where} for update
    ), counted as materialized (
      select c.seq, c.merged, (select count(*) from jsonb_object_keys(c.merged))::integer as pairs from current c
    ), changed as (
      update ${workItems} w set metadata = c.merged
      from counted c where w.seq = c.seq and c.pairs <= ${LIMITS.metadataPairs} and ${problems.length === 0}
      returning ${itemSource('w')}
    )
    select c.pairs::text as pairs, ${itemAnswer('n')}, ${elsewhere} as "presentId"
    from (select 1) one left join counted c on true left join changed n on true`);

  if (row === undefined || row.pairs === null) return { presentId: row?.presentId ?? null };
  if (row.id !== null) return toWorkItem({ ...row, id: row.id });
  const pairs = Number(row.pairs);
  if (pairs > LIMITS.metadataPairs) problems.push(tooManyPairs(pairs));
  throw invalidMetadata(problems);
}

type Row = { pairs: string | null; presentId: string | null; id: string | null } & Omit<ItemRow, 'id'>;
