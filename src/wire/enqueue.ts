import { type Static, Type } from 'typebox';
import type { Assignment } from '../queue/assignment.ts';
import type { EnqueueRequest } from '../queue/enqueue.ts';
import { QueueError } from '../queue/errors.ts';
import { type TraceContext, WORK_KINDS, type WorkKind } from '../queue/items.ts';
import { isInstant, LIMITS } from '../queue/limits.ts';
import { Component, Metadata, Nullable } from './primitives.ts';
import { Work } from './work.ts';

const Session = Type.Object(
  {
    type: Type.Literal('session'),
    id: Type.String({ minLength: 1, maxLength: LIMITS.sessionIdCharacters, description: 'Your own text' }),
  },
  { additionalProperties: false },
);

export const EnqueueBody = Type.Object(
  {
    data: Session,
    kind: Type.Optional(
      Type.Unsafe<WorkKind>({ type: 'string', enum: [...WORK_KINDS], description: 'Default tool_exec' }),
    ),
    metadata: Type.Optional(Metadata),
    input: Type.Optional(
      Type.Unknown({
        description: `Any JSON value of at most ${LIMITS.inputBytes} bytes and ${LIMITS.inputLevels} levels; read back through the item's input, never on the wire`,
      }),
    ),
    priority: Type.Optional(
      Type.Integer({ minimum: -LIMITS.priority, maximum: LIMITS.priority, description: 'Higher first; default 0' }),
    ),
    not_before: Type.Optional(
      Type.String({
        minLength: 1,
        maxLength: 64,
        description: 'RFC 3339 with an offset: not handed out before',
        examples: ['2026-01-31T12:00:00Z'],
      }),
    ),
    max_hand_outs: Type.Optional(
      Type.Integer({
        minimum: 1,
        maximum: LIMITS.handOuts,
        description: 'Handed out that often without finishing, it is set aside; default: as the environment says',
      }),
    ),
    max_attempts: Type.Optional(
      Type.Integer({
        minimum: 1,
        maximum: LIMITS.attempts,
        description: 'Failed that often, it is set aside; default: as the environment says',
      }),
    ),
    request_id: Type.Optional(
      Type.String({
        minLength: 1,
        maxLength: LIMITS.requestIdCharacters,
        description:
          'Your name for this piece of work: asked for again, the same item answers for as long as it is remembered',
      }),
    ),
    follow_up: Type.Optional(
      Type.Boolean({
        description:
          'Covered by a live item, the request is enqueued when that one ends; one follow-up an item, the first',
      }),
    ),
  },
  { additionalProperties: false },
);

export const EnqueueAllBody = Type.Object(
  { items: Type.Array(EnqueueBody, { minItems: 1, maxItems: LIMITS.itemsPerCall }) },
  { additionalProperties: false },
);

export const EnqueuedAll = Type.Object({
  data: Type.Array(
    Type.Object({
      created: Type.Boolean({ description: 'False: a remembered request or a live item answers' }),
      work: Component(Work),
    }),
    { description: 'In the order asked' },
  ),
});

export const CancelBody = Type.Object({ data: Session }, { additionalProperties: false });

export const Cancelled = Type.Object({
  data: Type.Array(Component(Work), { description: 'What was stopped, oldest first' }),
});

const TraceHeaders = Type.Object({ traceparent: Type.String(), tracestate: Type.Optional(Type.String()) });

/** What whoever does the work needs to know beside the wire object. */
export const WorkInput = Type.Object({
  input: Type.Unknown({ description: 'As it was enqueued; null without one' }),
  kind: Type.Unsafe<WorkKind>({ type: 'string', enum: [...WORK_KINDS] }),
  seq: Type.String({ description: 'Decimal digits: the same in every attempt, which the id is not' }),
  attempt: Type.Integer({ description: 'From 1: one more than the failures so far' }),
  max_attempts: Type.Integer({ description: 'Failed that often, it is set aside' }),
  is_reclaimed: Type.Boolean({ description: 'Whoever had begun it let its lease lapse: part of the work may be done' }),
  trace_context: Nullable<Static<typeof TraceHeaders>>(TraceHeaders),
});

export const toWorkInput = (given: Assignment): Static<typeof WorkInput> => ({
  input: given.input,
  kind: given.kind,
  seq: given.seq,
  attempt: given.attempt,
  max_attempts: given.maxAttempts,
  is_reclaimed: given.isReclaimed,
  trace_context: given.traceContext,
});

/** `where` names the item in its call. Refuses: invalid_request. */
export function toEnqueueRequest(
  environmentId: string,
  body: Static<typeof EnqueueBody>,
  traceContext: TraceContext | undefined,
  where = '',
): EnqueueRequest {
  const { data, not_before: notBefore, max_hand_outs: maxHandOuts, max_attempts: maxAttempts } = body;
  const { request_id: requestId, follow_up: followUp } = body;
  if (notBefore !== undefined && !isInstant(notBefore)) {
    throw new QueueError('invalid_request', `${where}not_before must be an RFC 3339 instant with an offset`);
  }
  const { kind, metadata, input, priority } = body;
  const given = {
    kind,
    metadata,
    input,
    priority,
    notBefore,
    maxHandOuts,
    maxAttempts,
    requestId,
    followUp,
    traceContext,
  };
  const present = Object.entries(given).filter(([, value]) => value !== undefined);
  return { environmentId, sessionId: data.id, ...Object.fromEntries(present) };
}
