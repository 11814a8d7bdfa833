import pg from 'pg';

export type ListenHandlers = {
  onNotification(payload: string): void;
  /** Called each time listening (re)starts: what was said in between was missed, so look at everything again. */
  onListening(): void;
};

/** Starts listening and returns at once; `isListening` tells, `close` ends it. */
export type Listen = (handlers: ListenHandlers) => Listener;
export type Listener = { isListening(): boolean; close(): Promise<void> };

const PROBE_INTERVAL_MS = 15_000;
const RECONNECT_MS_MIN = 250;
const RECONNECT_MS_MAX = 10_000;

/**
 * One dedicated LISTEN client, kept alive: TCP keep-alive, a probe statement, jittered exponential reconnect
 * (design §5). A notification is a hint; without this client the server still works, only slower.
 */
export function listenOnPostgres(
  connectionString: string,
  channel: string,
  handlers: ListenHandlers,
  onFault: (error: unknown, what: string) => void,
): Listener {
  let client: pg.Client | undefined;
  let timer: NodeJS.Timeout | undefined;
  let listening = false;
  let closed = false;
  let failures = 0;

  const reconnect = (broken: pg.Client, error: unknown) => {
    if (closed || client !== broken) return;
    client = undefined;
    listening = false;
    clearTimeout(timer);
    onFault(error, 'the LISTEN connection broke, coming back');
    broken.removeAllListeners('notification');
    broken.end().catch(() => {});
    const ceiling = Math.min(RECONNECT_MS_MAX, RECONNECT_MS_MIN * 2 ** failures++);
    timer = setTimeout(connect, ceiling * (0.5 + Math.random() / 2));
  };

  const probe = (probed: pg.Client) => {
    timer = setTimeout(() => {
      probed.query('select 1').then(
        () => client === probed && !closed && probe(probed),
        (error) => reconnect(probed, error),
      );
    }, PROBE_INTERVAL_MS);
  };

  const connect = () => {
    const next = new pg.Client({
      connectionString,
      application_name: 'leasehold listen',
      keepAlive: true,
      connectionTimeoutMillis: 5_000,
      query_timeout: 5_000,
    });
    client = next;
    next.on('error', (error) => reconnect(next, error));
    next.on('end', () => reconnect(next, new Error('the connection ended')));
    next.on('notification', ({ payload }) => handlers.onNotification(payload ?? ''));
    next
      .connect()
      .then(() => next.query(`listen ${next.escapeIdentifier(channel)}`))
      .then(
        () => {
          if (closed || client !== next) return;
          failures = 0;
          listening = true;
          handlers.onListening();
          probe(next);
        },
        (error) => reconnect(next, error),
      );
  };

  connect();
  return {
    isListening: () => listening,
    async close() {
      closed = true;
      listening = false;
      clearTimeout(timer);
      await client?.end().catch(() => {});
    },
  };
}

/** What we need of PGlite. Its own types want those of Emscripten, from whoever checks what they import. */
type PgliteListening = {
  readonly closed: boolean;
  listen(channel: string, heard: (payload: string) => void): Promise<() => Promise<void>>;
};

/** PGlite is one process: what is heard here was said by a caller's own transaction in it. */
export function listenOnPglite(pglite: PgliteListening, channel: string, handlers: ListenHandlers): Listener {
  let listening = false;
  const started = pglite
    .listen(channel, (payload) => handlers.onNotification(payload))
    .then((unlisten) => {
      listening = true;
      handlers.onListening();
      return unlisten;
    });
  started.catch(() => {});
  return {
    isListening: () => listening,
    async close() {
      listening = false;
      const unlisten = await started.catch(() => undefined);
      if (!pglite.closed) await unlisten?.();
    },
  };
}
