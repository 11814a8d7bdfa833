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
  const { default: all } = module; // of CommonJS all that it exports, of which Node may name nothing
  const handlers = module.handlers ?? all?.handlers ?? all;
  if (handlers === undefined) throw new UsageError([`--handlers ${path}: it exports neither handlers nor a default`]);
  return { handlers, onReclaimed: module.onReclaimed ?? all?.onReclaimed };
}

/** What is wrong with the module or an option is wrong use. Throws UsageError. */
export function makeRunner(path: string, make: () => Runner): Runner {
  try {
    return make();
  } catch (error) {
    if (!(error instanceof QueueError)) throw error;
    const where = /^(handlers|onReclaimed)\b/.test(error.message) ? `--handlers ${path}: ` : '';
    throw new UsageError([`${where}${error.message}`], { cause: error });
  }
}
