/** Any of the official content blocks, as it was sent. */
type Content = readonly Readonly<Record<string, unknown>>[];
type Input = Readonly<Record<string, unknown>>;

/** What may be appended. Whoever sends it does not choose its id or instant. */
export type SentEvent =
  | { readonly type: 'user.message'; readonly content: Content }
  | { readonly type: 'user.interrupt' }
  | {
      readonly type: 'user.tool_confirmation';
      readonly tool_use_id: string;
      readonly result: 'allow' | 'deny';
      readonly deny_message?: string | null;
    }
  | {
      readonly type: 'user.tool_result';
      readonly tool_use_id: string;
      readonly content?: Content;
      readonly is_error?: boolean | null;
    }
  | {
      readonly type: 'user.custom_tool_result';
      readonly custom_tool_use_id: string;
      readonly content?: Content;
      readonly is_error?: boolean | null;
    }
  | { readonly type: 'agent.message'; readonly content: Content }
  | {
      readonly type: 'agent.tool_use';
      readonly name: string;
      readonly input: Input;
      readonly evaluated_permission?: 'allow' | 'ask' | 'deny';
    }
  | { readonly type: 'agent.custom_tool_use'; readonly name: string; readonly input: Input };

export type SentType = SentEvent['type'];

/** Whoever sends: `agent` is an API key; `worker` an environment key or a sessions token. */
export type Sender = 'agent' | 'worker';

/** Whom each may come from. Only a worker has run what it says the result of; the owner of a custom tool may be either. */
export const SENDERS = {
  'user.message': ['agent'],
  'user.interrupt': ['agent'],
  'user.tool_confirmation': ['agent'],
  'user.tool_result': ['worker'],
  'user.custom_tool_result': ['agent', 'worker'],
  'agent.message': ['agent'],
  'agent.tool_use': ['agent'],
  'agent.custom_tool_use': ['agent'],
} as const satisfies Record<SentType, readonly Sender[]>;

export const SENT_TYPES = Object.keys(SENDERS) as readonly SentType[];

/** What the server itself tells of. */
export const STATUS_TYPES = ['session.status_running', 'session.status_idle', 'session.status_terminated'] as const;

/** What is stored and listed. */
export const EVENT_TYPES = [...SENT_TYPES, ...STATUS_TYPES] as const;

/** The call that an event answers: the field and the id; null for what answers none. */
export function answerOf(event: SentEvent): { readonly field: string; readonly callId: string } | null {
  switch (event.type) {
    case 'user.tool_result':
    case 'user.tool_confirmation':
      return { field: 'tool_use_id', callId: event.tool_use_id };
    case 'user.custom_tool_result':
      return { field: 'custom_tool_use_id', callId: event.custom_tool_use_id };
    default:
      return null;
  }
}
