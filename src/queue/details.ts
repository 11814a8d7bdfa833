import { type RawBuilder, sql } from 'kysely';
import { rfc3339, type TableNames } from '../db/sql.ts';
import { type ItemRow, itemAnswer, itemSource, type Lane, toWorkItem, type WorkItem } from './items.ts';

/** Why an item stopped. `exhausted` and `failed` are set aside: put back only by somebody's decision. */
export const STOP_REASONS = ['worker', 'operator', 'abandoned', 'exhausted', 'failed', 'cancelled'] as const;
export type StopReason = (typeof STOP_REASONS)[number];

/** What its holder said of an item. */
export const OUTCOMES = ['succeeded', 'failed'] as const;
export type Outcome = (typeof OUTCOMES)[number];

/** All that an operator may know of an item, in either lane. */
export type WorkDetails = WorkItem & {
  readonly lane: Lane;
  readonly priority: number;
  readonly notBefore: string | null;
  /** Null: no cap. */
  readonly maxHandOuts: number | null;
  readonly handOutCount: number;
  /** One more than the failures so far. */
  readonly attempt: number;
  /** Null: the process's. */
  readonly maxAttempts: number | null;
  /** Not claimed before; null: at once. */
  readonly nextAttemptAt: string | null;
  /** How often it was taken over from a dead claimant. */
  readonly handOverCount: number;
  readonly cancelRequestedAt: string | null;
  /** What the last failure said, at most 2,000 characters of it. */
  readonly lastError: string | null;
  /** Who has it, or had it last. */
  readonly workerId: string | null;
  readonly handedOutAt: string | null;
  readonly leaseExpiresAt: string | null;
  /** Also of an item that is winding down. */
  readonly stopReason: StopReason | null;
  /** What its holder said of it as it ended; null when nobody did. */
  readonly outcome: Outcome | null;
  /** The holder left a result, which is read by itself (`readResult`). */
  readonly hasResult: boolean;
  /** The set-aside item in whose place this one was made. */
  readonly requeuedFrom: string | null;
  /** The item that was made in the place of this one, by its present id. */
  readonly requeuedAs: string | null;
  /** Work follows when its slot is free. */
  readonly hasFollowUp: boolean;
};

const COLUMNS = [
  ...['lane', 'priority', 'not_before', 'max_hand_outs', 'hand_out_count', 'worker_id', 'handed_out_at'],
  ...['lease_expires_at', 'stop_reason', 'requeued_from', 'follow_up', 'attempt', 'max_attempts', 'next_attempt_at'],
  ...['hand_over_count', 'cancel_requested_at', 'last_error', 'outcome'],
];

/** The columns that make an item's details, passed unchanged from one part of a statement to the next. */
export const detailsSource = (alias: string): RawBuilder<unknown> =>
  sql.join([itemSource(alias), ...COLUMNS.map((column) => sql.ref(`${alias}.${column}`))]);

/** The same columns as a statement answers them (see `itemAnswer`). */
export const detailsAnswer = ({ workItems, workResults }: TableNames, alias: string): RawBuilder<unknown> => {
  const column = (name: string) => sql.ref(`${alias}.${name}`);
  const instant = (name: string) => rfc3339(column(name));
  return sql`${itemAnswer(alias)}, ${column('lane')} as "lane", ${column('priority')} as "priority",
    ${instant('not_before')} as "notBefore", ${column('max_hand_outs')} as "maxHandOuts",
    ${column('hand_out_count')} as "handOutCount", ${column('attempt')} as "attempt", ${column('max_attempts')} as "maxAttempts",
    ${instant('next_attempt_at')} as "nextAttemptAt", ${column('hand_over_count')} as "handOverCount",
    ${instant('cancel_requested_at')} as "cancelRequestedAt", ${column('last_error')} as "lastError",
    ${column('worker_id')} as "workerId",
    ${instant('handed_out_at')} as "handedOutAt", ${instant('lease_expires_at')} as "leaseExpiresAt",
    ${column('stop_reason')} as "stopReason", ${column('outcome')} as "outcome",
    (exists (select from ${workResults} r where r.item_seq = ${column('seq')}))::text as "hasResult", ${column('requeued_from')} as "requeuedFrom",
    (select n.id from ${workItems} n where n.requeued_from = ${column('id')}) as "requeuedAs",
    (${column('follow_up')} is not null and ${column('state')} in ('queued', 'starting', 'active'))::text as "hasFollowUp"`;
};

export type DetailsRow = ItemRow & Omit<WorkDetails, keyof WorkItem | Flag> & Readonly<Record<Flag, 'true' | 'false'>>;
type Flag = 'hasFollowUp' | 'hasResult';

export const toWorkDetails = (row: DetailsRow): WorkDetails => ({
  ...toWorkItem(row),
  lane: row.lane,
  priority: row.priority,
  notBefore: row.notBefore,
  maxHandOuts: row.maxHandOuts,
  handOutCount: row.handOutCount,
  attempt: row.attempt,
  maxAttempts: row.maxAttempts,
  nextAttemptAt: row.nextAttemptAt,
  handOverCount: row.handOverCount,
  cancelRequestedAt: row.cancelRequestedAt,
  lastError: row.lastError,
  workerId: row.workerId,
  handedOutAt: row.handedOutAt,
  leaseExpiresAt: row.leaseExpiresAt,
  stopReason: row.stopReason,
  outcome: row.outcome,
  hasResult: row.hasResult === 'true',
  requeuedFrom: row.requeuedFrom,
  requeuedAs: row.requeuedAs,
  hasFollowUp: row.hasFollowUp === 'true',
});
