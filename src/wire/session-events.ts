import { type Static, type TSchema, Type } from 'typebox';
import { LIMITS } from '../queue/limits.ts';
import { EVENT_TYPES, type SentEvent, type SentType } from '../sessions/events.ts';
import { Component, Dictionary, Instant, Nullable, repeated } from './primitives.ts';
import { BetweenQuery } from './sessions-query.ts';

const CallId = (of: string) =>
  Type.String({ minLength: 1, maxLength: LIMITS.idCharacters, description: `The id of the ${of} event` });

const Content = Type.Array(
  Type.Object(
    { type: Type.String({ minLength: 1, maxLength: 64, examples: ['text'] }) },
    { additionalProperties: true, description: 'An official content block: text, image, document or search_result' },
  ),
);

const Tool = {
  name: Type.String({ minLength: 1, maxLength: LIMITS.toolNameCharacters, examples: ['bash'] }),
  input: Dictionary<unknown>(Type.Unknown(), {
    description: `Any JSON object of at most ${LIMITS.inputLevels} levels`,
    examples: [{ command: 'ls' }],
  }),
};

const Result = {
  content: Type.Optional(Content),
  is_error: Type.Optional(Nullable<boolean>(Type.Boolean())),
};

/** The fields of each event that may be sent, in the official shape; others are not kept. */
const FIELDS = {
  'user.message': { content: Content },
  'user.interrupt': {},
  'user.tool_confirmation': {
    tool_use_id: CallId('agent.tool_use'),
    result: Type.Unsafe<'allow' | 'deny'>({ type: 'string', enum: ['allow', 'deny'] }),
    deny_message: Type.Optional(Nullable<string>(Type.String({ maxLength: LIMITS.errorCharacters }))),
  },
  'user.tool_result': { tool_use_id: CallId('agent.tool_use'), ...Result },
  'user.custom_tool_result': { custom_tool_use_id: CallId('agent.custom_tool_use'), ...Result },
  'agent.message': { content: Content },
  'agent.tool_use': {
    ...Tool,
    evaluated_permission: Type.Optional(
      Type.Unsafe<'allow' | 'ask' | 'deny'>({
        type: 'string',
        enum: ['allow', 'ask', 'deny'],
        description: 'Absent: allow. ask: held until a user.tool_confirmation; deny: never run',
      }),
    ),
  },
  'agent.custom_tool_use': Tool,
} as const satisfies Record<SentType, Record<string, TSchema>>;

const SCHEMAS = Object.entries(FIELDS).map(([type, fields]) => Type.Object({ type: Type.Literal(type), ...fields }));

export const SentEventBody = Type.Unsafe<SentEvent>(Type.Union(SCHEMAS));

export const AppendBody = Type.Object({
  events: Type.Array(SentEventBody, { minItems: 1, maxItems: LIMITS.eventsPerCall }),
});

/** Only what the official shape has of an event. */
export function toSentEvent(given: SentEvent): SentEvent {
  const fields = given as unknown as Record<string, unknown>;
  const known = Object.keys(FIELDS[given.type]).filter((name) => fields[name] !== undefined);
  return { type: given.type, ...Object.fromEntries(known.map((name) => [name, fields[name]])) } as SentEvent;
}

/** As it is stored: what was sent, and these. */
export const SessionEvent = Type.Object(
  {
    id: Type.String({ examples: ['sevt_V1StGXR8Z5jdHi6BmyT'] }),
    type: Type.String({ enum: [...EVENT_TYPES] }),
    processed_at: Instant,
  },
  { $id: 'SessionEvent', title: 'SessionEvent', additionalProperties: true },
);
export type SessionEvent = Static<typeof SessionEvent>;

export const Appended = Type.Object({
  data: Type.Array(Component(SessionEvent), {
    description: 'In the order sent; in place of a result that repeats an earlier one, that one',
  }),
});

/** The official clients write `types[]`, people `types`. Types that are never stored here match nothing. */
const Types = repeated(Type.Unsafe<string>({ type: 'string', minLength: 1, maxLength: 64 }), 'Only these');

export const EventsQuery = Type.Object({
  limit: Type.Optional(
    Type.Integer({
      minimum: 1,
      maximum: LIMITS.pageItems,
      description: `Default ${LIMITS.pageItemsDefault}; a page of more than 8 MiB is shorter`,
    }),
  ),
  page: Type.Optional(Type.String({ minLength: 1, maxLength: 256, description: 'The next_page of the answer before' })),
  order: Type.Optional(
    Type.Unsafe<'asc' | 'desc'>({ type: 'string', enum: ['asc', 'desc'], description: 'Default asc' }),
  ),
  'types[]': Types,
  types: Types,
  ...BetweenQuery,
});
