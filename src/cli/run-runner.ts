import type { Config } from '../config.ts';
import { createQueue } from '../create-queue.ts';
import { openDatabase } from '../db/connect.ts';
import { migrate } from '../db/migrate.ts';
import type { Logger } from '../process/handler.ts';
import { createRunner } from '../process/runner.ts';
import { activeTraceContext } from '../telemetry/trace-context.ts';
import type { RunnerCommand } from './command.ts';
import { loadHandlers, makeRunner } from './load-handlers.ts';

/**
 * `leasehold runner`: handlers in a process of their own, until the signal aborts and all has stopped. Throws UsageError when the
 * module is none of handlers.
 */
export async function runRunner(
  { handlers: path, name: _, graceSeconds, ...options }: RunnerCommand,
  config: Config,
  logger: Logger,
  signal: AbortSignal,
): Promise<void> {
  if (config.databaseUrl === undefined) {
    throw new Error(
      'DATABASE_URL is not set. A runner is a second process, and the embedded database (PGlite, in DATA_DIR ' +
        `${config.dataDir}) serves one: give both a Postgres, or run the handlers inside the one process, by createRunner`,
    );
  }
  const module = await loadHandlers(path);
  const onFault = (error: unknown, what: string) => logger.warn({ err: error }, what);
  const { databaseUrl: connectionString, listenDatabaseUrl: listenConnectionString, sweepIntervalMs } = config;
  const database = await openDatabase({ connectionString, listenConnectionString, onFault });
  try {
    const queue = createQueue({ database, settings: config, traceContext: activeTraceContext, onFault });
    try {
      const runner = makeRunner(path, () =>
        createRunner({
          ...{ ...module, ...options, store: queue, logger, sweepIntervalMs },
          graceSeconds: graceSeconds ?? config.shutdownGraceSeconds,
        }),
      );
      await migrate(database);
      queue.start();
      logger.info({ handlers: Object.keys(module.handlers) }, 'claiming work');
      await runner.run(signal);
    } finally {
      await queue.close();
    }
  } finally {
    await database.close();
  }
}
