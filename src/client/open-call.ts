import { ended, RemoteToolError } from './remote-error.ts';
import { isLast, type SentEvent, type SessionEvent } from './session-events.ts';

type Sent<Type> = Extract<SentEvent, { readonly type: Type }>;
export type ToolUse = Sent<'agent.tool_use'>;
export type ContentBlock = NonNullable<Sent<'user.tool_result'>['content']>[number];

export type ToolOutcome = {
  readonly callId: string;
  /** The blocks that the worker sent. */
  readonly content: readonly ContentBlock[];
  /** The text blocks, joined by line breaks. */
  readonly text: string;
  /** The tool failed, and `text` says how. */
  readonly isError: boolean;
};

/** A call from its beginning to its outcome, whatever is heard of it in which order. */
export class OpenCall {
  readonly outcome: Promise<ToolOutcome>;
  readonly idempotencyKey = crypto.randomUUID();
  readonly #ended = new AbortController();
  #resolve: (outcome: ToolOutcome) => void = () => {};
  #reject: (error: unknown) => void = () => {};
  #id: string | undefined;
  /** Before the id is known: its result may be heard of before the answer to its append, and instead of a lost one. */
  #early: SessionEvent[] = [];
  #isSeen = false;

  constructor() {
    this.outcome = new Promise((resolve, reject) => {
      [this.#resolve, this.#reject] = [resolve, reject];
    });
  }

  get id(): string | undefined {
    return this.#id;
  }

  /** Aborts when it has an outcome. */
  get ended(): AbortSignal {
    return this.#ended.signal;
  }

  /** It was stored, as this event. */
  begin(stored: SessionEvent): void {
    this.#id = stored.id;
    if ('evaluated_permission' in stored && stored.evaluated_permission === 'deny')
      this.fail(denied('it was not permitted'));
    for (const event of this.#early) this.#hear(event, stored.id);
    this.#early = [];
  }

  /** An event of the session, of whatever it tells. */
  hear(event: SessionEvent): void {
    if (isLast(event)) this.fail(ended(event.type === 'session.deleted' ? 'deleted' : 'terminated'));
    else if (this.#id === undefined) this.#early.push(event);
    else this.#hear(event, this.#id);
  }

  #hear(event: SessionEvent, id: string): void {
    switch (event.type) {
      case 'agent.tool_use':
        this.#isSeen ||= event.id === id;
        break;
      case 'user.tool_result':
        if (event.tool_use_id === id) this.#succeed(event);
        break;
      case 'user.tool_confirmation':
        if (event.tool_use_id === id && event.result === 'deny') this.fail(denied(event.deny_message));
        break;
      case 'session.status_idle':
        // One that was told before the call is not about it.
        if (this.#isSeen && event.stop_reason.type === 'retries_exhausted') this.fail(exhausted());
    }
  }

  fail(error: unknown): void {
    this.#ended.abort();
    this.#reject(error);
  }

  #succeed({ tool_use_id: callId, content, is_error: isError }: Sent<'user.tool_result'>): void {
    this.#ended.abort();
    const texts = (content ?? []).flatMap(({ type, text }) => (type === 'text' ? [String(text)] : []));
    this.#resolve({ callId, content: content ?? [], text: texts.join('\n'), isError: isError === true });
  }
}

const denied = (message: string | null | undefined): RemoteToolError =>
  new RemoteToolError('denied', `the call was denied${message ? `: ${message}` : ''}`);

const exhausted = (): RemoteToolError =>
  new RemoteToolError('retries_exhausted', 'no worker answered the call: every one that took it was lost');
