import { ControlError } from './call.ts';
import { OpenCall, type ToolOutcome, type ToolUse } from './open-call.ts';
import { ended, RemoteToolError, toRemoteError } from './remote-error.ts';
import type { SessionApi } from './session-api.ts';
import { isFinal } from './shared-stream.ts';
import { Position, type SentEvent, type SessionEvent } from './session-events.ts';
import { type ToolCallOptions, toToolUse } from './tool-use.ts';

export type EventsOptions = {
  /** `now` is when the first event is asked for. Default beginning. */
  readonly from?: 'beginning' | 'now';
  readonly signal?: AbortSignal;
};

/** What listens while calls are open. */
type Listening = { readonly attached: Promise<void>; readonly position: Position; readonly stop: AbortController };

/** A session as the agent has it: the customer's machine, as hands. */
export class RemoteSession implements AsyncDisposable {
  readonly id: string;
  readonly #api: SessionApi;
  readonly #calls = new Set<OpenCall>();
  #position: Position;
  #listening: Listening | undefined;

  /** Made by RemoteTools. */
  constructor(id: string, api: SessionApi, position: Position) {
    this.id = id;
    this.#api = api;
    this.#position = position;
  }

  /**
   * Has a worker run a tool, and waits for what comes of it; a tool that failed is an outcome, too (`isError`). Any number of calls may be
   * open. Throws RemoteToolError where there is no outcome, ControlError where the server refuses or cannot be reached, and what
   * the signal was aborted with. A call that nobody waits for any more is withdrawn: a worker
   * that has not read it yet does not run it.
   */
  async call(name: string, input: ToolUse['input'] = {}, options: ToolCallOptions = {}): Promise<ToolOutcome> {
    const use = toToolUse(name, input, options);
    const { signal, timeoutMs } = options;
    signal?.throwIfAborted();
    const call = new OpenCall();
    const abort = () => call.fail(signal?.reason);
    signal?.addEventListener('abort', abort, { once: true });
    const timer =
      timeoutMs === undefined
        ? undefined
        : setTimeout(() => call.fail(new RemoteToolError('timed_out', `no answer within ${timeoutMs} ms`)), timeoutMs);
    this.#calls.add(call);
    const appended = this.#append(call, use);
    try {
      return await call.outcome;
    } catch (error) {
      if (!isClosed(error)) void this.#withdraw(call, use, appended);
      throw error;
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener('abort', abort);
      this.#calls.delete(call);
      if (this.#calls.size === 0) this.#stopListening();
    }
  }

  /** The session's events, each once and in order, until it ends. Throws ControlError, and what the signal was aborted with. */
  events({ from = 'beginning', signal }: EventsOptions = {}): AsyncGenerator<SessionEvent> {
    if (from !== 'beginning' && from !== 'now') throw new TypeError("from must be 'beginning' or 'now'");
    return this.#api.follow({ position: from === 'now' ? undefined : new Position(), signal });
  }

  /** Appends a message, of the agent unless it is the user's. */
  async say(
    text: string,
    options: { readonly as?: 'agent' | 'user'; readonly signal?: AbortSignal } = {},
  ): Promise<void> {
    if (typeof text !== 'string' || text === '') throw new TypeError('text must be a text that is not empty');
    const { as = 'agent', signal } = options;
    if (as !== 'agent' && as !== 'user') throw new TypeError("as must be 'agent' or 'user'");
    await this.send([{ type: `${as}.message`, content: [{ type: 'text', text }] }], { signal });
  }

  /** Appends events, all or none, and once, however often their answer is lost. Answers what was stored. */
  async send(
    events: readonly SentEvent[],
    options: { readonly signal?: AbortSignal | undefined } = {},
  ): Promise<SessionEvent[]> {
    if (!Array.isArray(events)) throw new TypeError('events must be a list of events');
    return this.#api.append(events, { signal: options.signal, idempotencyKey: crypto.randomUUID() });
  }

  /** Ends the session for good: the worker leaves at once, and what is open is rejected. Once more changes nothing. */
  async close(): Promise<void> {
    try {
      await this.#api.archive();
    } catch (error) {
      if (!(error instanceof ControlError && error.status === 404)) throw error; // deleted: nothing is left to be ended
    }
    for (const call of this.#calls) call.fail(ended('terminated'));
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /** Whether the call may be stored, as far as can be told. */
  async #append(call: OpenCall, use: ToolUse): Promise<boolean> {
    let isSent = false;
    try {
      this.#listening ??= this.#listen();
      await this.#listening.attached;
      if (call.ended.aborted) return false;
      isSent = true;
      const { idempotencyKey, ended: stop } = call;
      const [stored] = await this.#api.append([use], { idempotencyKey, stop });
      if (stored !== undefined) call.begin(stored);
      return true;
    } catch (error) {
      call.fail(toRemoteError(error));
      return isSent && !(error instanceof ControlError && isFinal(error));
    }
  }

  /** Listens until nobody waits. `attached`: an answer to what is appended from then on will be heard. */
  #listen(): Listening {
    const [stop, position] = [new AbortController(), this.#position.copy()];
    const end = () => {
      if (this.#listening?.stop === stop) this.#stopListening();
    };
    const attached = new Promise<void>((resolve, reject) => {
      const follow = async () => {
        for await (const event of this.#api.follow({ position, signal: stop.signal, onAttached: resolve })) {
          for (const call of this.#calls) call.hear(event);
        }
      };
      follow().then(
        () => {
          end();
          resolve();
        },
        (error) => {
          reject(error);
          if (stop.signal.aborted) return;
          end();
          for (const call of this.#calls) call.fail(toRemoteError(error));
        },
      );
    });
    attached.catch(() => {}); // told to the calls
    return { attached, position, stop };
  }

  #stopListening(): void {
    if (this.#listening === undefined) return;
    this.#position = this.#listening.position;
    this.#listening.stop.abort();
    this.#listening = undefined;
  }

  /** Closes a call that nobody waits for. Where the server cannot be reached for long, it stays open. */
  async #withdraw(call: OpenCall, use: ToolUse, appended: Promise<boolean>): Promise<void> {
    const mayBeStored = await appended;
    if (!mayBeStored) return;
    try {
      const id = call.id ?? (await this.#findStored(call, use));
      if (id === undefined) return;
      const deny_message = 'the agent no longer waits for it';
      await this.send([{ type: 'user.tool_confirmation', tool_use_id: id, result: 'deny', deny_message }]);
    } catch {
      // answered meanwhile, or the session has ended
    }
  }

  /** The id of a call the answer to whose append never came. Does not append it: another request under its key is refused if it was stored. */
  async #findStored({ idempotencyKey }: OpenCall, use: ToolUse): Promise<string | undefined> {
    try {
      await this.#api.append([NEVER_TAKEN], { idempotencyKey });
    } catch (error) {
      if (!(error instanceof ControlError && error.status === 409)) return undefined;
    }
    const [stored] = await this.#api.append([use], { idempotencyKey });
    return stored?.id;
  }
}

/** The relay refuses it, and remembers no key for what it never understood. */
const NEVER_TAKEN = { type: 'user.tool_confirmation', tool_use_id: 'none', result: 'deny' } as const;

/** Nobody can answer the call any more. */
const isClosed = (error: unknown): boolean =>
  error instanceof RemoteToolError && error.code !== 'timed_out' && error.code !== 'retries_exhausted';
