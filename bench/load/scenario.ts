import type { Samples } from './samples.ts';

/** Something that a load generator does to a server, connected and ready to begin. */
export type Scenario = {
  /** By the name of the call. */
  readonly samples: Readonly<Record<string, Samples>>;
  start(): void;
  /** Asks nothing more; what was asked is still answered. */
  stop(): void;
  /** When all that it was to do is done, or it was stopped and everything is answered. */
  readonly done: Promise<void>;
  close(): void;
};

/** Where calls go, and whose they are. */
export type Target = { readonly url: string; readonly key: string };

/** A request as it is sent. The worker's name is also what the rate limit counts by. */
export function requestTo(
  { url, key }: Target,
  worker: string,
): (method: string, path: string, body?: string) => string {
  const common = `HTTP/1.1\r\nhost: ${new URL(url).host}\r\nx-api-key: ${key}\r\nanthropic-worker-id: ${worker}\r\n`;
  return (method, path, body) => {
    const head = `${method} ${path} ${common}`;
    if (body !== undefined) {
      return `${head}content-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`;
    }
    return method === 'POST' ? `${head}content-length: 0\r\n\r\n` : `${head}\r\n`;
  };
}

export function expect(wanted: number, what: string, status: number, bytes: Buffer, start: number, end: number): void {
  if (status !== wanted) throw new Error(`${what} was answered ${status} ${bytes.toString('utf8', start, end)}`);
}

/** Resolves when it was called so often. */
export function countdown(count: number): { readonly done: Promise<void>; one(): void } {
  const { promise, resolve } = Promise.withResolvers<void>();
  let left = count;
  return {
    done: promise,
    one() {
      if (--left === 0) resolve();
    },
  };
}
