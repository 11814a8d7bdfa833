import { existsSync } from 'node:fs';
import { resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import type { Runner, RunnerOptions } from '../process/runner.ts';
import { QueueError } from '../queue/errors.ts';
import { UsageError } from './command.ts';

/** The module of `--handlers`. Throws UsageError. */
export async function loadHandlers(path: string): Promise<Pick<RunnerOptions, 'handlers' | 'onReclaimed'>> {
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

/** What is wrong with the module or an option is wrong use. Throws UsageError. */
export function makeRunner(path: string, make: () => Runner): Runner {
  try {
    return make();
  } catch (error) {
    if (!(error instanceof QueueError)) throw error;
    throw new UsageError([`--handlers ${path}: ${error.message}`], { cause: error });
  }
}
