import { sql } from 'kysely';
import type { Database } from '../db/connect.ts';
import {
  givenBack,
  handOutSource,
  type HolderRef,
  type HolderRow,
  holderAnswer,
  isLive,
  isPresent,
  lookTwice,
  refused,
} from './holder.ts';
import { checkRef } from './items.ts';
import { checkInteger, LIMITS } from './limits.ts';

export type ReleaseRequest = HolderRef & {
  /** 0 to 86400000: not handed out before. */
  readonly delayMs: number;
};

export type Released = {
  /** `stopped`: it had ended, or was to end. */
  readonly state: 'queued' | 'stopped';
  /** True when it may be handed out at once. */
  readonly isFree: boolean;
};

/**
 * Gives an item back, whose present hand-out is the caller's, under a live lease: queued again under a new id, now or later. The hand-out
 * counts neither against the item's cap nor as a failure, and is over: every call on the old id is not_found. An item that winds
 * down ends instead, and one that has ended stays so. Once more is answered the same.
 * Refuses: invalid_request; not_found; precondition_failed when the lease has lapsed.
 */
export async function release(database: Database, request: ReleaseRequest): Promise<Released> {
  checkRef(request);
  const { delayMs } = request;
  checkInteger('delay_ms', delayMs, 0, LIMITS.delayMs);
  const { names } = database;
  const notBefore = sql`case when ${delayMs}::integer > 0 then clock_timestamp() + ${delayMs}::integer * interval '1 millisecond' end`;
  const row = await lookTwice(() =>
    database.rows(sql<HolderRow>`
    with current as materialized (
      select w.seq, w.state, ${handOutSource},
        case
          when w.state = 'stopped' then 'over'
          when not ${isLive} then 'lapsed'
          when w.state = 'stopping' then 'stopped'
          else 'queued'
        end as decision
      from ${names.workItems} w where ${isPresent(request)} for update
    ), ${givenBack(names, 'released', sql`not_before = ${notBefore}`)}, ended as (
      update ${names.workItems} w set state = 'stopped', stopped_at = clock_timestamp(), lease_expires_at = null
      from current c where w.seq = c.seq and c.decision = 'stopped'
    )
    select ${holderAnswer(names, request)}`),
  );
  if (row.decision === 'queued') return { state: 'queued', isFree: delayMs === 0 };
  if (row.decision === 'stopped' || row.decision === 'over') return { state: 'stopped', isFree: false };
  if (row.ended === 'released') return { state: 'queued', isFree: false };
  throw refused(request, row);
}
