import { parseArgs } from 'node:util';
import { RUNNER_LIMITS } from '../process/check-runner.ts';
import { LIMITS } from '../queue/limits.ts';

export type RunnerCommand = {
  readonly name: 'runner';
  /** Path of the module. */
  readonly handlers: string;
  readonly concurrency: number | undefined;
  readonly ttlSeconds: number | undefined;
  readonly stallSeconds: number | undefined;
  readonly graceSeconds: number | undefined;
  readonly workerId: string | undefined;
};

export type Command = { readonly name: 'serve' } | { readonly name: 'help' } | RunnerCommand;

/** What is wrong with the arguments, each in a line. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
  readonly problems: readonly string[];
  constructor(problems: readonly string[], options: { cause?: unknown } = {}) {
    super(problems.join('\n'), options);
    this.problems = problems;
  }
}

export const USAGE = `Usage:
  leasehold [serve]                        the server; it is told by environment variables only
  leasehold runner --handlers FILE [...]   claims work of a Postgres (DATABASE_URL) and does it, without a server

  --handlers FILE    a module whose default export, or export "handlers", has a handler for each kind; it may export "onReclaimed"
  --concurrency N    items at once, of all kinds (4)
  --ttl-seconds N    length of a lease, which is renewed while the work runs (60)
  --stall-seconds N  work that reports no progress for so long is given up (0: never)
  --grace-seconds N  how long running work may go on after SIGTERM or SIGINT (SHUTDOWN_GRACE_SECONDS, or 10)
  --worker-id ID     who claims (one made up at each start)
  --help
`;

const help = { help: { type: 'boolean', short: 'h' } } as const;
const RUNNER_OPTIONS = {
  ...help,
  handlers: { type: 'string' },
  concurrency: { type: 'string' },
  'ttl-seconds': { type: 'string' },
  'stall-seconds': { type: 'string' },
  'grace-seconds': { type: 'string' },
  'worker-id': { type: 'string' },
} as const;

/** Reads the command line, without its first two words. Throws UsageError, which names all that is wrong. */
export function parseCommand(args: readonly string[]): Command {
  const [name = 'serve', ...rest] = args[0]?.startsWith('-') ? ['serve', ...args] : args;
  if (name === 'serve') return parse(rest, help).help ? { name: 'help' } : { name: 'serve' };
  if (name === 'runner') return parseRunner(rest);
  if (name === 'help') return { name: 'help' };
  throw new UsageError([`there is no command ${JSON.stringify(name)}: it is serve or runner`]);
}

function parseRunner(args: readonly string[]): Command {
  const values = parse(args, RUNNER_OPTIONS);
  if (values.help) return { name: 'help' };
  const problems: string[] = [];
  const integer = (option: keyof typeof values, min: number, max: number): number | undefined => {
    const given = values[option];
    if (given === undefined) return undefined;
    const value = /^(0|[1-9]\d{0,15})$/.test(`${given}`) ? Number(given) : Number.NaN;
    if (value >= min && value <= max) return value;
    problems.push(`--${option} must be an integer from ${min} to ${max}, got ${JSON.stringify(given)}`);
    return undefined;
  };
  if (!values.handlers) problems.push('--handlers must name a module');
  if (values['worker-id'] === '') problems.push('--worker-id must not be empty');
  const command: Command = {
    name: 'runner',
    handlers: values.handlers ?? '',
    concurrency: integer('concurrency', 1, RUNNER_LIMITS.concurrency),
    ttlSeconds: integer('ttl-seconds', 1, LIMITS.leaseTtlSeconds),
    stallSeconds: integer('stall-seconds', 0, LIMITS.leaseTtlSeconds),
    graceSeconds: integer('grace-seconds', 0, RUNNER_LIMITS.graceSeconds),
    workerId: values['worker-id'],
  };
  if (problems.length > 0) throw new UsageError(problems);
  return command;
}

function parse<const Options extends Record<string, { type: 'string' | 'boolean'; short?: string }>>(
  args: readonly string[],
  options: Options,
) {
  try {
    return parseArgs({ args: [...args], options }).values;
  } catch (error) {
    throw new UsageError([error instanceof Error ? error.message : `${error}`], { cause: error });
  }
}
