import { type CommandUnknownOpts, Option, type Command as Parser } from '@commander-js/extra-typings';
import { ConfigError, readConfig } from '../../config.ts';
import { openDatabase } from '../../db/connect.ts';
import { migrate, schemaStatus } from '../../db/migrate.ts';
import { RUNNER_LIMITS } from '../../process/check-runner.ts';
import { LIMITS } from '../../queue/limits.ts';
import type { Context } from '../context.ts';
import { type Kit, withExamples } from '../kit.ts';
import { urlProblem } from '../options.ts';

/** What runs on this machine and needs no server. */
export function processCommands(program: CommandUnknownOpts, { choose, checks, problems }: Kit): void {
  const serve = program.command('serve').description('the server; it is told by environment variables only');
  withExamples(serve, ['serve']).action(() => choose({ name: 'serve' }));

  withExamples(
    program
      .command('migrate')
      .description('brings the schema of DATABASE_URL to this version; a server does so as it starts'),
    ['migrate'],
  ).action(() => choose({ name: 'run', run: runMigrate }));

  const withHandlers = (name: string, summary: string, examples: readonly string[]) =>
    withExamples((program as Parser).command(name).description(summary), examples)
      .option(
        '--handlers <file>',
        'a module whose default export, or export "handlers", has a handler for each kind; it may export "onReclaimed"',
      )
      .option(
        '--concurrency <n>',
        'items at once, of all kinds (4)',
        checks.integer('concurrency', 1, RUNNER_LIMITS.concurrency),
      )
      .option(
        '--ttl-seconds <n>',
        'length of a lease, which is renewed while the work runs (60)',
        checks.integer('ttl-seconds', 1, LIMITS.leaseTtlSeconds),
      )
      .option(
        '--stall-seconds <n>',
        'work that reports no progress for so long is given up (0: never)',
        checks.integer('stall-seconds', 0, LIMITS.leaseTtlSeconds),
      )
      .option(
        '--grace-seconds <n>',
        'how long running work may go on after SIGTERM or SIGINT (SHUTDOWN_GRACE_SECONDS, or 10)',
        checks.integer('grace-seconds', 0, RUNNER_LIMITS.graceSeconds),
      )
      .option('--worker-id <id>', 'who claims (one made up at each start)', checks.text('worker-id'));

  withHandlers('runner', 'claims work of a Postgres (DATABASE_URL) and does it, without a server', [
    'runner --handlers ./handlers.ts',
    'runner --handlers ./handlers.ts --concurrency 16 --worker-id runner-7',
  ])
    .usage('--handlers FILE [options]')
    .action(({ handlers = '', concurrency, ttlSeconds, stallSeconds, graceSeconds, workerId }) => {
      if (handlers === '') problems.unshift('--handlers must name a module');
      choose({ name: 'runner', handlers, concurrency, ttlSeconds, stallSeconds, graceSeconds, workerId });
    });

  withHandlers('worker', 'polls a server for the work of an environment and does it, on any machine', [
    'worker --url https://work.example.com --handlers ./handlers.ts',
    'ANTHROPIC_ENVIRONMENT_KEY=$(cat worker.key) leasehold worker --handlers ./handlers.ts --concurrency 16',
  ])
    .usage('--handlers FILE [options]')
    .addOption(new Option('--url <url>', 'the server (http://127.0.0.1:8080)').env('LEASEHOLD_URL'))
    .addOption(
      new Option('--key <key>', 'an environment key; on the command line every user of the machine can read it').env(
        'ANTHROPIC_ENVIRONMENT_KEY',
      ),
    )
    .action(({ handlers = '', key = '', ...options }) => {
      const url = options.url || 'http://127.0.0.1:8080';
      if (handlers === '') problems.unshift('--handlers must name a module');
      if (key === '') problems.push('ANTHROPIC_ENVIRONMENT_KEY, or --key, must be an environment key');
      const urlIs = urlProblem('LEASEHOLD_URL, or --url,', url);
      if (urlIs !== undefined) problems.push(urlIs);
      const { concurrency, ttlSeconds, stallSeconds, graceSeconds, workerId } = options;
      choose({ name: 'worker', url, key, handlers, concurrency, ttlSeconds, stallSeconds, graceSeconds, workerId });
    });
}

async function runMigrate({ environment, print }: Context): Promise<number> {
  const { databaseUrl } = readConfig(environment);
  if (databaseUrl === undefined) {
    throw new ConfigError(['DATABASE_URL must be set: the embedded database is migrated by the server, as it starts']);
  }
  const database = await openDatabase({ connectionString: databaseUrl });
  try {
    const applied = await migrate(database);
    for (const name of applied) print(`applied ${name}\n`);
    const isNewer = (await schemaStatus(database)) === 'newer';
    if (isNewer) print('the schema is of a later version than this one; it serves this one, too\n');
    else if (applied.length === 0) print('nothing to do: the schema is current\n');
    return 0;
  } finally {
    await database.close();
  }
}
