import { type RawBuilder, sql } from 'kysely';
import type { TableNames } from '../db/sql.ts';
import { QueueError } from './errors.ts';
import { mintId } from './ids.ts';
import { handOutReached, notFound, presentId, type WorkRef, type WorkState } from './items.ts';
import { isPolled } from './sets.ts';
import { parseSessionsToken } from './sessions-token.ts';

/** One hand-out, by the id that its item has for as long as it is the present one, and the hash of its sessions token; null: an operator's, who has none. */
export type HolderRef = WorkRef & { readonly tokenHash: string | null };

/** Of a hand-out, by its sessions token; any other text is nobody's. */
export const holderByToken = ({ environmentId, id }: WorkRef, sessionsToken: string): HolderRef => ({
  ...{ environmentId, id, tokenHash: parseSessionsToken(sessionsToken)?.hash ?? '' },
});

/** What may have become of a hand-out: it ends as the caller says (`queued`: the item goes back), or nothing is done. */
export type Decision = 'queued' | 'stopped' | 'lapsed' | 'over' | 'repeated';

/** What the statements of holders answer, beside what is their own; `decision` null: that is not the present hand-out. */
export type HolderRow = {
  readonly decision: Decision | null;
  readonly state: WorkState | null;
  /** How the hand-out ended, where another id followed. */
  readonly ended: string | null;
  readonly presentId: string | null;
};

const isTheirs = (hash: RawBuilder<unknown>, { tokenHash }: HolderRef) =>
  sql`(${tokenHash}::text is null or ${hash} = ${tokenHash}::text)`;

/** The present hand-out `w`. Its id goes with it: hence no weaker lock. */
export const isPresent = (ref: HolderRef): RawBuilder<unknown> =>
  sql`w.id = ${ref.id} and (w.environment_id = ${ref.environmentId}) is true and ${isPolled}
        and ${isTheirs(sql`w.sessions_token_hash`, ref)}`;

export const isLive = sql`(w.lease_expires_at > clock_timestamp()) is true`;

/** What of a hand-out `w` goes to its record when it ends before the item. */
export const handOutSource = sql`w.id, w.environment_id, w.worker_id, w.sessions_token_hash, w.handed_out_at, ${handOutReached('w')}, w.lapsed_at`;

/**
 * Two parts of a statement's `with`: what of `current` (seq, decision and `handOutSource`) is decided to be queued goes back under a new id, its hand-out
 * recorded as one that ended for `reason` and uncounted: nothing lapsed. `also` is set with it.
 */
export const givenBack = (
  { workItems, handOuts }: TableNames,
  reason: 'released' | 'failed',
  also: RawBuilder<unknown>,
): RawBuilder<unknown> => sql`
  superseded as (
    insert into ${handOuts} (work_id, item_seq, environment_id, worker_id, sessions_token_hash, handed_out_at,
      acknowledged_at, started_at, last_heartbeat, lapsed_at, reason)
    select c.id, c.seq, c.environment_id, c.worker_id, c.sessions_token_hash, c.handed_out_at,
      c.acknowledged_at, c.started_at, c.last_heartbeat, c.lapsed_at, ${sql.lit(reason)}
    from current c where c.decision = 'queued'
  ), given_back as (
    update ${workItems} w
    set id = ${mintId('work')}, state = 'queued', ${also}, hand_out_count = w.hand_out_count - 1, is_last_hand_out = false,
      handed_out_at = null, worker_id = null, sessions_token_hash = null, lease_expires_at = null, lease_ttl_seconds = null,
      acknowledged_at = null, started_at = null, last_heartbeat = null, replaced_heartbeat = null,
      lapsed_state = null, lapsed_at = null, lapsed_acknowledged_at = null, lapsed_started_at = null, lapsed_heartbeat = null
    from current c where w.seq = c.seq and c.decision = 'queued'
  )`;

/** The columns of `HolderRow`, and what they are read from; the caller's `current` may be joined with more. */
export const holderAnswer = (names: TableNames, ref: HolderRef): RawBuilder<unknown> =>
  sql`c.decision, c.state, h.reason as ended,
      ${presentId(names, sql`${ref.environmentId}`, sql`${ref.id}`)} as "presentId"
    from (select 1) one left join current c on true
      left join ${names.handOuts} h on h.work_id = ${ref.id} and h.environment_id = ${ref.environmentId}
        and ${isTheirs(sql`h.sessions_token_hash`, ref)}`;

/**
 * Looks again when nothing was done: who has waited for a row does not see what the one before did beside it, and the same call
 * sent twice is to be answered the same.
 */
export async function lookTwice<Row extends HolderRow>(look: () => Promise<readonly Row[]>): Promise<Row> {
  const isDone = (row: Row | undefined) => row?.decision === 'queued' || row?.decision === 'stopped';
  const [first] = await look();
  const [row] = isDone(first) ? [first] : await look();
  if (row === undefined) throw new Error("a holder's statement has no answer");
  return row;
}

/** Refuses: not_found, when the hand-out is not the present one; precondition_failed, when its lease has lapsed. */
export function refused({ id }: HolderRef, { decision, state, presentId }: HolderRow): QueueError {
  if (decision === null) return notFound(id, presentId);
  return new QueueError('precondition_failed', `work item ${id} is held under no live lease`, {
    details: { error_code: 'lease_lapsed', current_state: { state } },
  });
}
