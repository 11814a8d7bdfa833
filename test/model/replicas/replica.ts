import { Agent, type ServerResponse } from 'node:http';
import { createCallers } from '../../../src/control/credentials.ts';
import { createQueue, type Queue } from '../../../src/create-queue.ts';
import { type Database, openDatabase } from '../../../src/db/connect.ts';
import { buildApp } from '../../../src/http/app.ts';
import { turn } from '../../support/gates.ts';
import { OPERATOR_KEY } from '../../support/harness.ts';
import { wayToDatabase } from './way.ts';

export const STARTUP_LEASE_SECONDS = 200;
export const LEASE_TTL_SECONDS = 120;
export const RESERVATION_MS = 60_000;
export const MAX_ATTEMPTS = 25;

/** A server with connections and a memory of its own, of which nothing is left after a crash. */
export type Replica = {
  readonly name: string;
  readonly url: string;
  readonly agent: Agent;
  readonly queue: Queue;
  /** The worker ids of polls whose client was gone before the whole answer was written. */
  readonly undelivered: Set<string>;
  /** The worker ids of polls that were sent a first byte and had to wait for the rest. */
  readonly begun: Set<string>;
  /** The ports of clients that left, and those whose connections have ended here, as is known of both in this history. */
  readonly left: Set<number>;
  readonly ended: Set<number>;
  /** Requests that are open or may be about to come, and statements that run, of the calls. */
  inFlight(): number;
  /** Until then the answers of the database are held back. */
  delayAnswers(until: Promise<void>): Promise<void>;
  /** It gets no answer of the database any more, and then its connections break. */
  loseAnswers(until: Promise<void>): Promise<void>;
  crash(): void;
  close(): Promise<void>;
};

/** On a poll: its answer takes its time (see `Slow`). */
export const SLOW_HEADER = 'x-test-slow';
/** As long as the most patient of the clients that leave. */
const SLOW_TURNS = 25;

const turns = async (count: number): Promise<void> => {
  for (let left = count; left > 0; left--) await turn();
};

/** As where the client reads slowly: a few bytes, and the rest later. */
function sendSlowly(response: ServerResponse, onBegun: () => void): void {
  const end = response.end.bind(response);
  const endSlowly = (text: string): ServerResponse => {
    if (!response.destroyed) onBegun(); // else it is the null of a client that has left
    response.write(text.slice(0, 1));
    void turns(SLOW_TURNS).then(() => end(text.slice(1)));
    return response;
  };
  response.end = endSlowly as typeof response.end;
}

/** The same database, the statements that run counted. */
function counted(plain: Database): { database: Database; running(): number } {
  let running = 0;
  const count = async <Result>(run: () => Promise<Result>): Promise<Result> => {
    running++;
    try {
      return await run();
    } finally {
      running--;
    }
  };
  const through = (watched: Database): Database => ({
    ...watched,
    rows: (statement, transaction) => count(() => watched.rows(statement, transaction)),
    transaction: (run) => count(() => watched.transaction(run)),
  });
  const aside: Database = {
    ...through(plain.aside),
    get aside() {
      return aside; // that of locks: uncounted, the last statement of a client that left would come after its history
    },
  };
  return { database: { ...through(plain), aside }, running: () => running };
}

export async function startReplica(schema: string, name: string): Promise<Replica> {
  const way = await wayToDatabase(name);
  const pools = { poolConnectionsMax: 6, asideConnectionsMax: 1 };
  const { database, running } = counted(await openDatabase({ connectionString: way.url, schema, ...pools }));
  const settings = {
    startupLeaseSeconds: STARTUP_LEASE_SECONDS,
    leaseTtlSeconds: LEASE_TTL_SECONDS,
    maxAttempts: MAX_ATTEMPTS,
  };
  const queue = createQueue({ database, settings: { ...settings, reclaimOlderThanMs: RESERVATION_MS } });
  queue.start();
  const callers = createCallers({ database, operatorKey: OPERATOR_KEY });
  let url = '';
  const app = buildApp({
    ...{ queue, database, callers, publicUrl: () => url, requestsPerSecondMax: 0 },
    beforeRoutes: (instance) =>
      instance.addHook('onSend', async ({ headers }) => {
        if (headers[SLOW_HEADER] === 'before') await turns(SLOW_TURNS);
      }),
  });
  const undelivered = new Set<string>();
  const begun = new Set<string>();
  const [left, ended] = [new Set<number>(), new Set<number>()];
  app.server.on('connection', (socket) => {
    const port = socket.remotePort ?? 0;
    ended.delete(port);
    socket.once('close', () => ended.add(port));
  });
  let open = 0;
  app.server.on('request', ({ headers }, response) => {
    open++;
    const workerId = headers['anthropic-worker-id']?.toString() ?? '';
    if (headers[SLOW_HEADER] === 'within') sendSlowly(response, () => begun.add(workerId));
    response.once('close', () => {
      open--;
      if (workerId !== '' && !response.writableFinished) undelivered.add(workerId);
    });
  });
  url = await app.listen({ host: '127.0.0.1', port: 0 });
  const agent = new Agent({ keepAlive: true });
  let closing: Promise<void> | undefined;
  const close = async () => {
    app.server.closeAllConnections();
    await app.close();
    await callers.close();
    await queue.close();
    await database.close();
    await way.close();
  };
  return {
    ...{ name, url, agent, queue, undelivered, begun, left, ended },
    inFlight: () => open + left.difference(ended).size + running(),
    delayAnswers: way.delay,
    loseAnswers: way.lose,
    crash() {
      way.cut();
      app.server.closeAllConnections();
      agent.destroy();
      closing = close();
    },
    close: async () => {
      agent.destroy();
      await (closing ?? close());
    },
  };
}
