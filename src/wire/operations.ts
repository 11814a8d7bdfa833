import { type Static, Type } from 'typebox';
import type { Introspection as IntrospectionRecord } from '../control/introspect.ts';
import {
  OUTCOMES,
  type Outcome,
  STOP_REASONS,
  type StopReason,
  type WorkDetails as WorkDetailsRecord,
} from '../queue/details.ts';
import { HAND_OUT_ENDS, type HandOutEnd, type History } from '../queue/history.ts';
import { WORK_KINDS, WORK_STATES, type WorkKind, type WorkState } from '../queue/items.ts';
import { LIMITS } from '../queue/limits.ts';
import { HOLDS_PER_WORKER_MAX, WORKERS_MAX, type Worker } from '../queue/workers.ts';
import { Component, Instant, Nullable, NullableInstant, repeated } from './primitives.ts';
import { ListQuery, toWork, Work } from './work.ts';

const oneOf = <T extends string>(values: readonly T[]) => Type.Unsafe<T>({ type: 'string', enum: [...values] });
const text = (charactersMax: number) => Type.Unsafe<string>({ type: 'string', minLength: 1, maxLength: charactersMax });

const { secret: _, ...fieldsOfWork } = Work.properties;

/** What an operator sees of an item: the work object without its secret, and what stays between server and worker. */
export const WorkDetails = Type.Object(
  {
    ...fieldsOfWork,
    kind: oneOf(WORK_KINDS),
    lane: oneOf(['wire', 'process']),
    priority: Type.Integer(),
    not_before: NullableInstant,
    max_hand_outs: Nullable<number>(Type.Integer({ description: 'Null: no cap of its own' })),
    hand_out_count: Type.Integer(),
    attempt: Type.Integer({ description: 'One more than the failures so far' }),
    max_attempts: Nullable<number>(Type.Integer({ description: 'Null: as the environment says' })),
    next_attempt_at: Nullable<string>(NullableInstant, { description: 'Not claimed before' }),
    hand_over_count: Type.Integer({ description: 'How often it was taken over from a dead claimant' }),
    cancel_requested_at: NullableInstant,
    last_error: Nullable<string>(Type.String({ description: 'What the last failure said' })),
    worker_id: Nullable<string>(Type.String({ description: 'Who has it, or had it last' })),
    handed_out_at: NullableInstant,
    lease_expires_at: NullableInstant,
    stop_reason: Type.Unsafe<StopReason | null>({
      type: ['string', 'null'],
      enum: [...STOP_REASONS, null],
      description: 'Why it stops or stopped',
    }),
    outcome: Type.Unsafe<Outcome | null>({
      type: ['string', 'null'],
      enum: [...OUTCOMES, null],
      description: 'What its holder said of it as it ended; null when nobody did',
    }),
    has_result: Type.Boolean({ description: 'The holder left a result' }),
    requeued_from: Nullable<string>(Type.String({ description: 'The set-aside item that this one replaces' })),
    requeued_as: Nullable<string>(Type.String({ description: 'The item that replaces this one, by its present id' })),
    follow_up: Type.Boolean({ description: 'Work follows when it ends' }),
  },
  { $id: 'WorkDetails', title: 'WorkDetails' },
);

export function toWorkDetails(item: WorkDetailsRecord): Static<typeof WorkDetails> {
  const { secret, ...work } = toWork(item);
  return {
    ...work,
    kind: item.kind,
    lane: item.lane,
    priority: item.priority,
    not_before: item.notBefore,
    max_hand_outs: item.maxHandOuts,
    hand_out_count: item.handOutCount,
    attempt: item.attempt,
    max_attempts: item.maxAttempts,
    next_attempt_at: item.nextAttemptAt,
    hand_over_count: item.handOverCount,
    cancel_requested_at: item.cancelRequestedAt,
    last_error: item.lastError,
    worker_id: item.workerId,
    handed_out_at: item.handedOutAt,
    lease_expires_at: item.leaseExpiresAt,
    stop_reason: item.stopReason,
    outcome: item.outcome,
    has_result: item.hasResult,
    requeued_from: item.requeuedFrom,
    requeued_as: item.requeuedAs,
    follow_up: item.hasFollowUp,
  };
}

export const WorkDetailsQuery = Type.Object({
  ...ListQuery.properties,
  state: repeated(oneOf<WorkState>(WORK_STATES), `At most ${LIMITS.filters} values in all filters`),
  session: repeated(text(LIMITS.sessionIdCharacters), 'The session id'),
  kind: repeated(oneOf<WorkKind>(WORK_KINDS), 'What the work is'),
  reason: repeated(oneOf<StopReason>(STOP_REASONS), 'Why it stopped'),
  outcome: repeated(oneOf<Outcome>(OUTCOMES), 'What its holder said of it'),
  worker: repeated(text(LIMITS.workerIdCharacters), 'Who has it, or had it last'),
});

export const WorkDetailsPage = Type.Object({
  data: Type.Array(Component(WorkDetails)),
  next_page: Nullable<string>(Type.String({ description: 'For the parameter page; null on the last page' })),
});

const HandOut = Type.Object({
  work_id: Type.String({ description: 'What the item was called then' }),
  worker_id: Nullable<string>(Type.String()),
  handed_out_at: Instant,
  acknowledged_at: NullableInstant,
  started_at: NullableInstant,
  last_heartbeat_at: NullableInstant,
  lapsed_at: Nullable<string>(NullableInstant, { description: 'When its lease ran out' }),
  ended_at: Nullable<string>(NullableInstant, { description: 'When the next one took its place, or the item stopped' }),
  outcome: Type.Unsafe<HandOutEnd | Outcome | StopReason | null>({
    type: ['string', 'null'],
    enum: [...new Set([...HAND_OUT_ENDS, ...OUTCOMES, ...STOP_REASONS]), null],
    description:
      'Null while it goes on; how it ended before the item did; what the holder said of the item, else why that stopped',
  }),
});

export const WorkHistory = Type.Object({
  work: Component(WorkDetails),
  hand_outs: Type.Array(HandOut, { description: 'Oldest first' }),
});

export const toWorkHistory = ({ work, handOuts }: History): Static<typeof WorkHistory> => ({
  work: toWorkDetails(work),
  hand_outs: handOuts.map((handOut) => ({
    work_id: handOut.workId,
    worker_id: handOut.workerId,
    handed_out_at: handOut.handedOutAt,
    acknowledged_at: handOut.acknowledgedAt,
    started_at: handOut.startedAt,
    last_heartbeat_at: handOut.lastHeartbeatAt,
    lapsed_at: handOut.lapsedAt,
    ended_at: handOut.endedAt,
    outcome: handOut.outcome,
  })),
});

const LIVE_STATES = ['queued', 'starting', 'active', 'stopping'] as const;

export const Workers = Type.Object({
  data: Type.Array(
    Type.Object({
      worker_id: Type.String(),
      last_poll_at: Nullable<string>(NullableInstant, { description: 'Null: too long ago to be remembered' }),
      holds: Type.Array(
        Type.Object({
          work_id: Type.String(),
          session_id: Type.String(),
          state: oneOf(LIVE_STATES),
          lease_expires_at: Instant,
        }),
        { description: `What it has under a live lease, at most ${HOLDS_PER_WORKER_MAX}` },
      ),
    }),
    { description: `The last seen first, at most ${WORKERS_MAX}` },
  ),
});

export const toWorkers = (workers: readonly Worker[]): Static<typeof Workers> => ({
  data: workers.map(({ workerId, lastPollAt, holds }) => ({
    worker_id: workerId,
    last_poll_at: lastPollAt,
    holds: holds.map(({ workId, sessionId, state, leaseExpiresAt }) => ({
      ...{ work_id: workId, session_id: sessionId, state, lease_expires_at: leaseExpiresAt },
    })),
  })),
});

export const IntrospectBody = Type.Object(
  {
    token: Type.String({
      minLength: 1,
      maxLength: LIMITS.tokenCharacters,
      description: 'The sessions_token of a secret; any text will do',
    }),
  },
  { additionalProperties: false },
);

/** The fields beside `active` are null unless it is true. */
export const Introspection = Type.Object({
  active: Type.Boolean({ description: 'The hand-out goes on: it is the present one, its lease is live' }),
  work_id: Nullable<string>(Type.String()),
  environment_id: Nullable<string>(Type.String()),
  session_id: Nullable<string>(Type.String()),
  state: Type.Unsafe<(typeof LIVE_STATES)[number] | null>({ type: ['string', 'null'], enum: [...LIVE_STATES, null] }),
});

export const toIntrospection = (found: IntrospectionRecord): Static<typeof Introspection> => ({
  active: found.isActive,
  work_id: found.isActive ? found.workId : null,
  environment_id: found.isActive ? found.environmentId : null,
  session_id: found.isActive ? found.sessionId : null,
  state: found.isActive ? found.state : null,
});
