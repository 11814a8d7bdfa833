import { once } from 'node:events';
import { pino } from 'pino';
import { readConfig } from '../src/config.ts';
import { createCallers } from '../src/control/credentials.ts';
import { createQueue, type Queue } from '../src/create-queue.ts';
import { openDatabase } from '../src/db/connect.ts';
import { migrate } from '../src/db/migrate.ts';
import { buildApp } from '../src/http/app.ts';
import { ack } from '../src/queue/ack.ts';
import { only, type QueueError } from '../src/queue/errors.ts';
import { heartbeat } from '../src/queue/heartbeat.ts';
import { poll } from '../src/queue/poll.ts';
import { HELD } from '../src/queue/sets.ts';
import { stop } from '../src/queue/stop.ts';
import { toHeartbeat } from '../src/single-calls.ts';

/**
 * The control: what `src/main.ts` wires, but each poll, ack, heartbeat and stop is a statement of its own. Polls are answered at once,
 * since nobody wakes them.
 */
const config = readConfig(process.env);
const log = pino({ level: config.logLevel, base: null }, pino.destination({ sync: true }));
const onFault = (error: unknown, what: string) => log.warn({ err: error }, what);
const database = await openDatabase({ connectionString: config.databaseUrl, onFault });
await migrate(database);
const shared = createQueue({ database, settings: config, onFault });

const one = <T>(outcomes: readonly (T | QueueError | typeof HELD)[]): T =>
  only(
    outcomes.map((outcome) => {
      if (outcome === HELD) throw new Error('a row was passed over');
      return outcome;
    }),
  );

const queue: Queue = {
  ...shared,
  async poll({ environmentId, workerId = null, reclaimOlderThanMs = null, minQueuedAgeMs = 0 }) {
    const looked = await poll(database, environmentId, [{ workerId, reclaimOlderThanMs }], {
      ...shared.settings,
      minQueuedAgeMs,
    });
    return looked.handOuts[0] ?? null;
  },
  ackOne: async (ref) => one(await ack(database, [ref], shared.settings)),
  heartbeatOne: async (request) => one(await heartbeat(database, [toHeartbeat(request)], shared.settings)),
  stopOne: async (request) => one(await stop(database, [request])),
};
queue.start();
const callers = createCallers({ database, operatorKey: config.operatorKey });
let address = '';
const app = buildApp({
  queue,
  database,
  callers,
  publicUrl: () => address,
  logger: log,
  requestsPerSecondMax: config.requestsPerSecondMax,
});
address = await app.listen({ host: config.host, port: config.port });
log.info(`listening on ${address}`);
await once(process, 'SIGTERM');
queue.stopWaiting();
app.server.closeAllConnections();
await app.close();
await callers.close();
await queue.close();
await database.close();
