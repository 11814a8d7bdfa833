import { once } from 'node:events';
import { type Logger, pino } from 'pino';
import pretty from 'pino-pretty';
import { type Command, FailedError, type RunnerCommand, UsageError, type WorkerCommand } from './cli/command.ts';
import { sayingOf } from './cli/failures.ts';
import { helpHint, parseCommand } from './cli/program.ts';
import { runRunner } from './cli/run-runner.ts';
import { runWorker } from './cli/run-worker.ts';
import { ControlError } from './client/call.ts';
import { type Config, ConfigError, readConfig } from './config.ts';
import { createCallers } from './control/credentials.ts';
import { hasApiKey } from './control/keys.ts';
import { createQueue } from './create-queue.ts';
import { openDatabase } from './db/connect.ts';
import { DatabaseUnavailable } from './db/failures.ts';
import { migrate } from './db/migrate.ts';
import { firstStartText, prepareFirstStart } from './first-start.ts';
import { buildApp } from './http/app.ts';
import { createOtlpMeterProvider } from './telemetry/export.ts';
import { registerGauges } from './telemetry/gauges.ts';
import { activeTraceContext } from './telemetry/trace-context.ts';

/** A collector that does not answer is left alone after this. */
const LAST_EXPORT_MS = 1_000;
/** Past the grace, for what was taken by then to be answered. */
const ANSWERING_MS_MAX = 700;
/** Past the grace, for what waits on the database: a silent one must not keep the process. */
const CLOSING_MS_MAX = 3_000;

/** Starts everything in order, waits for a signal, and closes it all in reverse. */
async function serve(config: Config, log: Logger): Promise<void> {
  const signal = Promise.race(['SIGTERM', 'SIGINT'].map((name) => once(process, name).then(() => name)));
  const onFault = (error: unknown, what: string) => log.warn({ err: error }, what);
  const database = await openDatabase({
    connectionString: config.databaseUrl,
    listenConnectionString: config.listenDatabaseUrl,
    dataDir: config.dataDir,
    onFault,
  });
  const closers: (() => unknown)[] = [() => database.close()];
  try {
    await migrate(database);
    const firstKeys = await prepareFirstStart(database, config.dataDir);
    const queue = createQueue({ database, settings: config, traceContext: activeTraceContext, onFault });
    closers.push(() => queue.close());
    queue.start();

    const callers = createCallers({ database, operatorKey: config.operatorKey });
    closers.push(() => callers.close());
    let address = '';
    const app = buildApp({
      queue,
      database,
      callers,
      publicUrl: () => config.publicUrl ?? address,
      sessionsUpstreamUrl: config.sessionsUpstreamUrl,
      corsOrigins: config.corsOrigins,
      logger: log,
      requestsPerSecondMax: config.requestsPerSecondMax,
    });
    closers.push(() => app.close());
    address = await app.listen({
      host: config.host,
      port: config.port,
      listenTextResolver: () => 'accepting connections',
    });
    log.info({ address, engine: database.engine, publicUrl: config.publicUrl ?? address }, `listening on ${address}`);

    if (config.otlp !== undefined) {
      const provider = await createOtlpMeterProvider(config.otlp, onFault);
      const unregister = registerGauges(provider.getMeter('leasehold'), queue.allStats, onFault);
      closers.push(async () => {
        await provider
          .shutdown({ timeoutMillis: LAST_EXPORT_MS })
          .catch((error) => onFault(error, 'the last metrics could not be exported'));
        unregister();
      });
    }
    if (config.operatorKey === undefined && firstKeys === undefined && !(await hasApiKey(database))) {
      log.warn('there is no API key yet: start with LEASEHOLD_API_KEY to make an environment and its keys');
    }
    if (firstKeys !== undefined)
      process.stdout.write(firstStartText(config.publicUrl ?? address, config.dataDir, firstKeys));

    log.info({ signal: await signal }, 'shutting down');
    process.once('SIGINT', () => process.exit(130)); // a second Ctrl-C does not wait
    queue.stopWaiting();
    const graceMs = config.shutdownGraceSeconds * 1_000;
    const grace = setTimeout(() => app.server.closeAllConnections(), graceMs + ANSWERING_MS_MAX);
    const deadline = setTimeout(leave, graceMs + CLOSING_MS_MAX, log);
    closers.unshift(() => clearTimeout(deadline));
    await app.drain(graceMs);
    await app.close();
    clearTimeout(grace);
  } finally {
    for (const close of closers.reverse()) await close();
  }
  log.info('stopped');
}

/** Runs handlers until a signal; a second one does not wait. */
async function runHandlers(command: RunnerCommand | WorkerCommand, config: Config, log: Logger): Promise<void> {
  const stopping = new AbortController();
  const graceMs = (command.graceSeconds ?? config.shutdownGraceSeconds) * 1_000;
  let deadline: NodeJS.Timeout | undefined;
  const onSignal = (name: 'SIGTERM' | 'SIGINT') => {
    if (stopping.signal.aborted) process.exit(name === 'SIGINT' ? 130 : 143);
    log.info({ signal: name }, 'shutting down');
    stopping.abort();
    deadline = setTimeout(leave, graceMs + CLOSING_MS_MAX, log);
  };
  for (const name of ['SIGTERM', 'SIGINT'] as const) process.on(name, onSignal);
  if (command.name === 'worker') await runWorker(command, config, log, stopping.signal);
  else await runRunner(command, config, log, stopping.signal);
  clearTimeout(deadline);
  log.info('stopped');
}

function leave(log: Logger): never {
  log.error('not everything could be closed in time, leaving');
  process.exit(1);
}

function main(): Promise<void> | undefined {
  let command: Command;
  let config: Config;
  try {
    command = parseCommand(process.argv.slice(2));
    if (command.name === 'tell') return void process.stdout.write(command.text);
    if (command.name === 'run') throw new UsageError(['this is the server alone: leasehold has the other commands']);
    config = readConfig(process.env);
  } catch (error) {
    return tellProblems(error);
  }
  const log = pino(
    { level: config.logLevel, base: null },
    process.stdout.isTTY ? pretty({ sync: true }) : pino.destination({ sync: true }),
  );
  return (command.name === 'serve' ? serve(config, log) : runHandlers(command, config, log))
    .catch((error: unknown) => {
      if (error instanceof UsageError) return tellProblems(error);
      // What is the operator's to mend is told by its reason alone: a stack would be about our files.
      log.fatal(isOperators(error) ? {} : { err: error }, `could not run: ${reasonOf(error)}`);
      process.exitCode = 1;
    })
    .finally(() => process.exit()); // all is closed, but for a collector that does not answer: its socket is not waited for
}

/** Each in a line, with exit 2 where the arguments are wrong and 1 where the environment is. */
function tellProblems(error: unknown): undefined {
  if (!(error instanceof ConfigError || error instanceof UsageError)) throw error;
  for (const problem of error.problems) process.stderr.write(`leasehold: ${problem}\n`);
  if (error instanceof UsageError) process.stderr.write(`${helpHint(process.argv.slice(2))}\n`);
  process.exitCode = error instanceof UsageError ? 2 : 1;
}

/** What `leasehold worker` was refused for. */
const WORKER_REFUSED: Readonly<Record<number, string>> = {
  401: 'ANTHROPIC_ENVIRONMENT_KEY: ',
  403: 'ANTHROPIC_ENVIRONMENT_KEY: ',
  404: 'LEASEHOLD_URL, ANTHROPIC_ENVIRONMENT_KEY: ',
};

const isListening = (error: Error): boolean => 'syscall' in error && error.syscall === 'listen';

const isOperators = (error: unknown): boolean =>
  error instanceof DatabaseUnavailable ||
  error instanceof ControlError ||
  error instanceof FailedError ||
  (error instanceof Error && isListening(error));

/** What an operator can act on: the innermost cause, and the variable that it is about. */
function reasonOf(error: unknown): string {
  if (error instanceof DatabaseUnavailable) return `DATABASE_URL: ${reasonOf(error.cause)}`;
  if (!(error instanceof Error)) return String(error);
  if (error instanceof ControlError) return `${WORKER_REFUSED[error.status ?? 0] ?? ''}${sayingOf(error)}`;
  const code = 'code' in error ? String(error.code) : '';
  const about = isListening(error) ? 'HOST, PORT: ' : '';
  return `${about}${error.message || code}`;
}

await main();
