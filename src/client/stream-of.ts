import { type ClientOptions, ControlError, refused, wait } from './call.ts';
import { createSharedStream } from './shared-stream.ts';

export type StreamOptions = ClientOptions & {
  /** A stream that says nothing for so long is taken for lost; default 45 s, three of the server's pings. */
  readonly silenceMsMax?: number;
};

const SILENCE_MS_MAX = 45_000;
/** Half a minute in all: a server that is being replaced is waited for. */
export const RETRIES_MAX = 8;

/** The stream at a path of the server, shared by all who join. */
export function streamOf<Event>(options: StreamOptions, path: string) {
  return createSharedStream<Event>({
    async open(signal) {
      const url = `${options.baseUrl.replace(/\/+$/, '')}${path}`;
      const headers = { 'x-api-key': options.apiKey, accept: 'text/event-stream' };
      const response = await (options.fetch ?? fetch)(url, { headers, signal });
      if (!response.ok) throw refused(response, await response.text()).error;
      if (response.headers.get('content-type')?.startsWith('text/event-stream')) return response;
      await response.body?.cancel();
      throw new ControlError('the answer is no event stream', { status: response.status, type: 'unknown_error' });
    },
    sleep: options.sleep ?? wait,
    failuresMax: options.retriesMax ?? RETRIES_MAX,
    silenceMsMax: options.silenceMsMax ?? SILENCE_MS_MAX,
  });
}
