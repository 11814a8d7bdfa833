import { type Static, Type } from 'typebox';
import { LIMITS } from '../queue/limits.ts';
import { SESSION_STATUSES, type Session as SessionRecord, type SessionStatus } from '../sessions/session.ts';
import {
  Component,
  Dictionary,
  EnvironmentId,
  Instant,
  Metadata,
  Nullable,
  NullableInstant,
  repeated,
} from './primitives.ts';
import { SentEventBody } from './session-events.ts';
import { BetweenQuery } from './sessions-query.ts';

export const SessionId = Type.String({ pattern: '^sesn_[A-Za-z0-9_-]{1,64}$', examples: ['sesn_V1StGXR8Z5jdHi6BmyT'] });
export const SessionParams = Type.Object({ session_id: SessionId });

const Status = Type.Unsafe<SessionStatus>({ type: 'string', enum: [...SESSION_STATUSES] });
const Title = Nullable<string>(Type.String({ minLength: 1, maxLength: LIMITS.titleCharacters }));

/** What is not told when the session is made. */
const AGENT = {
  type: 'agent',
  id: 'agent',
  version: 1,
  name: 'agent',
  description: null,
  system: null,
  model: { id: '' },
  tools: [
    {
      type: 'agent_toolset_20260401',
      default_config: { enabled: true, permission_policy: { type: 'always_allow' } },
      configs: [],
    },
  ],
  mcp_servers: [],
  skills: [],
  multiagent: null,
  execution_identity: null,
} as const;

const Empty = (description: string) => Type.Array(Type.Unknown(), { description });

/** The official shape; what the relay does not have is null or empty. */
export const Session = Type.Object(
  {
    id: Type.String(),
    type: Type.Literal('session'),
    environment_id: Type.String(),
    title: Title,
    status: Status,
    agent: Dictionary<unknown>(Type.Unknown(), { description: 'As it was given, completed to the official shape' }),
    metadata: Metadata,
    created_at: Instant,
    updated_at: Instant,
    archived_at: NullableInstant,
    budget: Type.Null(),
    deployment_id: Type.Null(),
    outcome_evaluations: Empty('None here'),
    resources: Empty('None here'),
    stats: Type.Object({}),
    usage: Type.Object({}),
    vault_ids: Empty('None here'),
  },
  { $id: 'Session', title: 'Session' },
);
export type Session = Static<typeof Session>;

export const toSessionObject = (session: SessionRecord): Session => ({
  id: session.id,
  type: 'session',
  environment_id: session.environmentId,
  title: session.title,
  status: session.status,
  agent: { ...AGENT, ...session.agent },
  metadata: session.metadata,
  created_at: session.createdAt,
  updated_at: session.updatedAt,
  archived_at: session.archivedAt,
  budget: null,
  deployment_id: null,
  outcome_evaluations: [],
  resources: [],
  stats: {},
  usage: {},
  vault_ids: [],
});

const None = (what: string) =>
  Type.Optional(
    Nullable<unknown[]>(Type.Array(Type.Unknown(), { maxItems: 0, description: `${what} are not served here` })),
  );

const AgentName = Type.String({ minLength: 1, maxLength: LIMITS.nameCharacters });

/** By its id, or by any of the official fields. */
const AgentBody = Type.Object(
  {
    id: Type.Optional(AgentName),
    name: Type.Optional(AgentName),
    version: Type.Optional(Type.Integer({ minimum: 1, maximum: 2_147_483_647 })),
    description: Type.Optional(Nullable<string>(Type.String())),
    system: Type.Optional(Nullable<string>(Type.String())),
    tools: Type.Optional(Type.Array(Type.Object({ type: Type.String() }, { additionalProperties: true }))),
    skills: None('skills'),
    mcp_servers: None('mcp_servers'),
  },
  { additionalProperties: true },
);

export const SessionBody = Type.Object({
  environment_id: EnvironmentId,
  title: Type.Optional(Title),
  metadata: Type.Optional(Metadata),
  agent: Type.Optional(Type.Union([AgentName, AgentBody])),
  initial_events: Type.Optional(Type.Array(SentEventBody, { maxItems: 50, description: 'Appended with it' })),
  resources: None('resources'),
  vault_ids: None('vault_ids'),
  budget: Type.Optional(Type.Null({ description: 'Not kept here' })),
});

/** What cannot be changed is refused, not passed over. */
const Kept = (what: string) => Type.Optional(Type.Null({ description: `${what} cannot be changed here` }));

export const SessionChangeBody = Type.Object({
  title: Type.Optional(Title),
  metadata: Type.Optional(
    Nullable<Record<string, string | null>>(
      Dictionary(Type.Unsafe<string | null>({ type: ['string', 'null'] }), {
        description: 'Merged; null deletes a key',
        examples: [{ team: 'tools', note: null }],
      }),
    ),
  ),
  agent: Kept('agent'),
  budget: Kept('budget'),
  vault_ids: Kept('vault_ids'),
});

/** The official clients write `statuses[]`, people `statuses`. Nothing here is ever rescheduling. */
const Statuses = repeated(
  Type.Unsafe<SessionStatus | 'rescheduling'>({ type: 'string', enum: [...SESSION_STATUSES, 'rescheduling'] }),
  'Only these',
);

export const SessionsQuery = Type.Object({
  limit: Type.Optional(
    Type.Integer({ minimum: 1, maximum: LIMITS.pageItems, description: `Default ${LIMITS.pageItemsDefault}` }),
  ),
  page: Type.Optional(
    Type.String({ minLength: 1, maxLength: 256, description: 'The next_page or prev_page of an answer before' }),
  ),
  order: Type.Optional(
    Type.Unsafe<'asc' | 'desc'>({ type: 'string', enum: ['asc', 'desc'], description: 'Default desc' }),
  ),
  include_archived: Type.Optional(Type.Boolean({ description: 'Default false' })),
  agent_id: Type.Optional(Type.String({ minLength: 1, maxLength: LIMITS.nameCharacters })),
  'statuses[]': Statuses,
  statuses: Statuses,
  ...BetweenQuery,
});

export const SessionPage = Type.Object({
  data: Type.Array(Component(Session)),
  next_page: Nullable<string>(Type.String({ description: 'For the parameter page; null on the last page' })),
  prev_page: Nullable<string>(Type.String({ description: 'For the parameter page; null on the first page' })),
});

export const SessionDeleted = Type.Object({ id: Type.String(), type: Type.Literal('session_deleted') });

/** The agent as it is kept: also an id that was not given, since sessions are found by it. */
export function toAgent(given: Static<typeof SessionBody>['agent']): Record<string, unknown> {
  if (given === undefined) return { id: AGENT.id };
  if (typeof given === 'string') return { id: given };
  const { type: _, skills: __, mcp_servers: ___, ...agent } = given as Record<string, unknown>;
  return { id: AGENT.id, ...agent };
}
