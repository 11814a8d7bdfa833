import type { Config } from '../config.ts';
import type { Logger } from '../process/handler.ts';
import { QueueError } from '../queue/errors.ts';
import { createWireRunner } from '../worker/wire-runner.ts';
import { FailedError, type WorkerCommand } from './command.ts';
import { loadHandlers, makeRunner } from './load-handlers.ts';

/**
 * `leasehold worker`: the handlers of `leasehold runner`, over HTTP, until the signal aborts and all has stopped. Throws UsageError when the
 * module is none of handlers; ControlError when the server refuses the key; FailedError for one that is not an environment's.
 */
export async function runWorker(
  { handlers: path, name: _, graceSeconds, ...options }: WorkerCommand,
  config: Config,
  logger: Logger,
  signal: AbortSignal,
): Promise<void> {
  const module = await loadHandlers(path);
  const runner = makeRunner(path, () =>
    createWireRunner({ ...module, ...options, logger, graceSeconds: graceSeconds ?? config.shutdownGraceSeconds }),
  );
  logger.info({ url: options.url }, 'polling for work');
  await runner.run(signal).catch((error: unknown) => {
    if (!(error instanceof QueueError) || error.code !== 'invalid_request') throw error;
    throw new FailedError(`ANTHROPIC_ENVIRONMENT_KEY, or --key: ${error.message}`, { cause: error });
  });
}
