import { existsSync } from 'node:fs';
import { resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import type { Config } from '../config.ts';
import { createQueue } from '../create-queue.ts';
import { openDatabase } from '../db/connect.ts';
import { migrate } from '../db/migrate.ts';
import type { Logger } from '../process/handler.ts';
import { createRunner, type RunnerOptions } from '../process/runner.ts';
import { QueueError } from '../queue/errors.ts';
import { activeTraceContext } from '../telemetry/trace-context.ts';
import { type RunnerCommand, UsageError } from './command.ts';

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
      const runner = makeRunner(path, {
        ...{ ...module, ...options, store: queue, logger, sweepIntervalMs },
        graceSeconds: graceSeconds ?? config.shutdownGraceSeconds,
      });
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

async function loadHandlers(path: string): Promise<Pick<RunnerOptions, 'handlers' | 'onReclaimed'>> {
  const file = resolve(path);
  if (!existsSync(file)) throw new UsageError([`--handlers ${path}: there is no such file`]);
  const module = await import(pathToFileURL(file).href).catch((error: unknown) => {
    throw new Error(`--handlers ${path}: ${error instanceof Error ? error.message : error}`, { cause: error });
  });
  if (module.handlers === undefined && module.default === undefined) {
    throw new UsageError([`--handlers ${path}: it exports neither handlers nor a default`]);
  }
  return { handlers: module.handlers ?? module.default, onReclaimed: module.onReclaimed };
}

function makeRunner(path: string, options: RunnerOptions) {
  try {
    return createRunner(options);
  } catch (error) {
    if (!(error instanceof QueueError)) throw error;
    throw new UsageError([`--handlers ${path}: ${error.message}`], { cause: error });
  }
}
