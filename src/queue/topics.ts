import { type Lane, topicOf, type WorkKind } from './items.ts';

/** Whom rows with lane, kind and environment_id are for, each once; from JSON, since a caller's connection may have run the statement. */
export function topicsOf(json: string | null): string[] {
  const rows: { lane: Lane; kind: WorkKind; environment_id: string }[] = json === null ? [] : JSON.parse(json);
  return [...new Set(rows.map((row) => topicOf({ ...row, environmentId: row.environment_id })))];
}
