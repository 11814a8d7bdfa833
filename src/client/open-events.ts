import type { EnvironmentEvent } from '../wire/environment-events.ts';
import { checkAccess, path } from './call.ts';
import { type StreamOptions, streamOf } from './stream-of.ts';

/** `attached`: first, and whenever the connection had been lost. What was told in between is lost: look. */
export type OpenedEvent = EnvironmentEvent | { readonly type: 'attached' };

/**
 * What happens in an environment, as hints, until the signal aborts: over lost connections and restarts of the server. `apiKey` may be any
 * credential of the environment: an API key, an environment key, a sessions token. Throws TypeError where one of them is missing; ControlError where the server refuses for good, or
 * could not be reached before it was attached once. A reader that does not read keeps no more than 16 MiB, and is `attached` anew past that.
 */
export async function* openEvents(
  options: StreamOptions,
  environmentId: string,
  { signal }: { readonly signal?: AbortSignal } = {},
): AsyncGenerator<OpenedEvent, void, undefined> {
  checkAccess(options, { environmentId });
  if (signal?.aborted) return;
  const reader = streamOf<EnvironmentEvent>(options, path`/control/v1/environments/${environmentId}/events`).join();
  signal?.addEventListener('abort', reader.leave, { once: true });
  try {
    for (;;) {
      const given = await reader.next();
      if (given === undefined) return;
      yield given === 'attached' ? { type: 'attached' } : given;
    }
  } finally {
    signal?.removeEventListener('abort', reader.leave);
    reader.leave();
  }
}
