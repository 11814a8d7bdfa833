import type { Static } from 'typebox';
import type { Session, SessionBody } from '../wire/sessions.ts';
import { createCall, path } from './call.ts';
import { createControlClient } from './control-client.ts';
import { RemoteSession } from './remote-session.ts';
import { createSessionApi, type RemoteToolsOptions } from './session-api.ts';
import { Position } from './session-events.ts';

type NewSession = Omit<Static<typeof SessionBody>, 'environment_id' | 'initial_events'> & {
  readonly signal?: AbortSignal;
  /** 1 to 255 printable ASCII characters: the same session however often, for a day. Default: a random one. */
  readonly idempotencyKey?: string;
};

/**
 * Tools that run on a customer's machine, for an agent loop that runs elsewhere. On that machine an official worker polls the
 * environment. Works where there are `fetch` and web streams: Node 20, browsers.
 */
export class RemoteTools {
  readonly #options: RemoteToolsOptions;
  readonly #control;
  readonly #read;

  constructor(options: RemoteToolsOptions) {
    this.#options = options;
    this.#control = createControlClient(options);
    this.#read = createCall(options, '/v1');
  }

  /** A new session of the environment. Throws ControlError. */
  async session(environmentId: string, options: NewSession = {}): Promise<RemoteSession> {
    checkId('environmentId', environmentId);
    const { signal, idempotencyKey, ...body } = options;
    const { id } = await this.#control.createSessionOnce(
      { ...body, environment_id: environmentId },
      { ...(signal === undefined ? {} : { signal }), ...(idempotencyKey === undefined ? {} : { idempotencyKey }) },
    );
    return new RemoteSession(id, createSessionApi(this.#options, id), new Position());
  }

  /** A session that exists, of whoever made it. Throws ControlError. */
  async attach(sessionId: string, { signal }: { readonly signal?: AbortSignal } = {}): Promise<RemoteSession> {
    checkId('sessionId', sessionId);
    const asked = signal === undefined ? {} : { signal };
    const { id, updated_at } = await this.#read<Session>('GET', path`/sessions/${sessionId}`, asked);
    return new RemoteSession(id, createSessionApi(this.#options, id), new Position(updated_at));
  }
}

function checkId(field: string, value: unknown): void {
  if (typeof value !== 'string' || value === '') throw new TypeError(`${field} must be a text that is not empty`);
}
