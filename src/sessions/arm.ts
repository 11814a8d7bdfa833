import { sql } from 'kysely';
import type { Database } from '../db/connect.ts';
import { enqueue, offeredOf } from '../queue/enqueue.ts';
import type { Offered, TraceContext } from '../queue/items.ts';
import type { SessionRow } from './session.ts';

export type ArmOptions = {
  /** Not offered before this instant. */
  readonly notBefore?: string | undefined;
  /** An item that waits for an instant does no longer. */
  readonly isUrgent?: boolean;
  readonly traceContext?: TraceContext | undefined;
};

/**
 * Has a worker for a session: one live item, in the transaction that the database is bound to. Answers what is to be announced after
 * its commit. Refuses: environment_archived, environment_not_found.
 */
export async function arm(
  database: Database,
  { id, environmentId }: Pick<SessionRow, 'id' | 'environmentId'>,
  { notBefore, isUrgent = false, traceContext }: ArmOptions,
): Promise<Offered[]> {
  const enqueued = await enqueue(database, {
    environmentId,
    sessionId: id,
    ...(notBefore === undefined ? {} : { notBefore }),
    ...(traceContext === undefined ? {} : { traceContext }),
  });
  if (enqueued.created || !isUrgent) return offeredOf([enqueued]);
  const { workItems } = database.names;
  const hastened = await database.rows(sql<{ id: string }>`
    update ${workItems} w set not_before = null
    where w.seq = ${enqueued.item.seq}::bigint and w.state = 'queued' and w.not_before is not null
    returning w.id`);
  return hastened.length === 0 ? [] : [{ ...enqueued.item, lane: enqueued.lane }];
}
