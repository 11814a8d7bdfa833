import { ConfigError, type Config, readConfig } from '../../config.ts';
import type { Context } from '../context.ts';
import { readAccess } from '../desk.ts';
import { type Check, fail, ok, skip } from './check.ts';
import { examineDatabase } from './database.ts';
import { examineServer } from './server.ts';
import { runCycle } from './cycle.ts';

/** All the checks, in the order in which one depends on those before. Changes nothing but an environment of its own, which it removes. */
export async function* examine(
  environment: Context['environment'],
  givenUrl: string | undefined,
): AsyncGenerator<Check> {
  const config = examineConfig(environment);
  yield config.check;
  const access = readAccess(environment, givenUrl);
  const server = yield* examineServer(access);
  yield* examineDatabase(config.config, server);
  if (server.isOpen) yield await runCycle(access);
  else yield skip('cycle', 'no server that lets us in');
}

function examineConfig(environment: Context['environment']): { check: Check; config: Config | undefined } {
  const name = 'configuration';
  try {
    const config = readConfig(environment);
    return { check: ok(name, 'nothing wrong in the environment variables'), config };
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    const remedy = 'a server with these variables does not start: set them right, or unset them';
    return { check: fail(name, error.problems.join('; '), remedy), config: undefined };
  }
}
