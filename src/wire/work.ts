import { type Static, Type } from 'typebox';
import { WORK_STATES, type WorkItem, type WorkState } from '../queue/items.ts';
import { LIMITS } from '../queue/limits.ts';
import { Component, Dictionary, Instant, Metadata, Nullable, NullableInstant } from './primitives.ts';

const State = Type.Unsafe<WorkState>({ type: 'string', enum: [...WORK_STATES] });

/** The work object: all fields always present, null until reached (contract §3). */
export const Work = Type.Object(
  {
    id: Type.String(),
    type: Type.Literal('work'),
    environment_id: Type.String(),
    state: State,
    data: Type.Object({ type: Type.Literal('session'), id: Type.String() }),
    metadata: Metadata,
    secret: Nullable<string>(
      Type.String({ description: 'Only in the answer of a poll: base64url of {"sessions_token", "api_base_url"}' }),
    ),
    created_at: Instant,
    acknowledged_at: NullableInstant,
    started_at: NullableInstant,
    latest_heartbeat_at: NullableInstant,
    stop_requested_at: NullableInstant,
    stopped_at: NullableInstant,
  },
  { $id: 'Work', title: 'Work' },
);
export type Work = Static<typeof Work>;

export function toWork(item: WorkItem, secret: string | null = null): Work {
  return {
    id: item.id,
    type: 'work',
    environment_id: item.environmentId,
    state: item.state,
    data: { type: 'session', id: item.sessionId },
    metadata: item.metadata,
    secret,
    created_at: item.createdAt,
    acknowledged_at: item.acknowledgedAt,
    started_at: item.startedAt,
    latest_heartbeat_at: item.lastHeartbeat,
    stop_requested_at: item.stopRequestedAt,
    stopped_at: item.stoppedAt,
  };
}

export const WorkPage = Type.Object({
  data: Type.Array(Component(Work)),
  next_page: Nullable<string>(Type.String({ description: 'For the parameter page; null on the last page' })),
});

export const WorkHeartbeat = Type.Object({
  type: Type.Literal('work_heartbeat'),
  last_heartbeat: NullableInstant,
  lease_extended: Type.Boolean(),
  state: State,
  ttl_seconds: Type.Integer({ minimum: 1 }),
});

export const WorkQueueStats = Type.Object({
  type: Type.Literal('work_queue_stats'),
  depth: Type.Integer({ description: 'Queued and free to be handed out now' }),
  pending: Type.Integer({ description: 'Queued, handed out, not yet acked, reservation live' }),
  oldest_queued_at: NullableInstant,
  workers_polling: Type.Integer({ description: 'Distinct worker ids seen polling within 30 s' }),
});

/** 200 with the JSON body `null` is the only empty answer that every client survives (contract §3). */
export const PollAnswer = Type.Union([Component(Work), Type.Null()]);

export const PollQuery = Type.Object({
  block_ms: Type.Optional(
    Type.Integer({ minimum: 1, maximum: LIMITS.blockMs, description: 'Wait this long for work; absent: do not wait' }),
  ),
  reclaim_older_than_ms: Type.Optional(
    Type.Integer({ minimum: 1, description: 'How long the item stays reserved for this poll; clamped to 600000' }),
  ),
});

export const PollHeaders = Type.Object({
  'anthropic-worker-id': Type.Optional(
    Type.String({ description: 'At most 256 characters; longer or empty: ignored' }),
  ),
});

export const HeartbeatQuery = Type.Object({
  expected_last_heartbeat: Type.String({
    minLength: 1,
    maxLength: LIMITS.heartbeatTokenCharacters,
    description: 'The last_heartbeat of the answer before, byte for byte, or NO_HEARTBEAT for the first',
    examples: ['NO_HEARTBEAT'],
  }),
  desired_ttl_seconds: Type.Optional(
    Type.Integer({ minimum: 1, description: 'Clamped to LEASE_TTL_MAX_SECONDS; absent: LEASE_TTL_SECONDS' }),
  ),
});

export const ListQuery = Type.Object({
  limit: Type.Optional(
    Type.Integer({ minimum: 1, maximum: LIMITS.pageItems, description: `Default ${LIMITS.pageItemsDefault}` }),
  ),
  page: Type.Optional(Type.String({ minLength: 1, maxLength: 256, description: 'The next_page of the answer before' })),
});

/** Nothing, or whether to end the item at once. */
export const StopBody = Nullable<{ force?: boolean }>(Type.Object({ force: Type.Optional(Type.Boolean()) }));

export const MetadataPatch = Type.Object({
  metadata: Dictionary<string | null>(Type.Unsafe<string | null>({ type: ['string', 'null'] }), {
    description: 'A null deletes, "" is a value, an omitted key is kept',
    examples: [{ team: 'tools', note: null }],
  }),
});
