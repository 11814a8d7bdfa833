import type { Context } from './context.ts';

type HandlersCommand = {
  /** Path of the module. */
  readonly handlers: string;
  readonly concurrency: number | undefined;
  readonly ttlSeconds: number | undefined;
  readonly stallSeconds: number | undefined;
  readonly graceSeconds: number | undefined;
  readonly workerId: string | undefined;
};

export type RunnerCommand = HandlersCommand & { readonly name: 'runner' };

export type WorkerCommand = HandlersCommand & {
  readonly name: 'worker';
  readonly url: string;
  /** An environment key. */
  readonly key: string;
};

/** What the arguments ask for. `serve`, `runner` and `worker` are the process entry's; all else can be run as it is, and may throw (`src/cli/failures.ts`). */
export type Command =
  | { readonly name: 'serve' }
  | RunnerCommand
  | WorkerCommand
  | { readonly name: 'tell'; readonly text: string }
  /** Resolves to the exit code. */
  | { readonly name: 'run'; readonly run: (context: Context) => Promise<number> };

/** What was asked for could not be done, in one line. */
export class FailedError extends Error {
  override readonly name = 'FailedError';
}

/** What is wrong with the arguments, each in a line. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
  readonly problems: readonly string[];
  constructor(problems: readonly string[], options: { cause?: unknown } = {}) {
    super(problems.join('\n'), options);
    this.problems = problems;
  }
}
