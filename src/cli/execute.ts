import { UsageError } from './command.ts';
import type { Context } from './context.ts';
import { failureOf } from './failures.ts';
import { helpHint, parseCommand } from './program.ts';

/**
 * Does what the arguments ask for, and answers the exit code (`src/cli/failures.ts`); undefined where `loadServer` took over, which reads the
 * arguments itself. Throws what nobody foresaw.
 */
export async function execute(
  args: readonly string[],
  context: Context,
  loadServer: () => Promise<unknown>,
): Promise<number | undefined> {
  try {
    const command = parseCommand(args);
    if (command.name === 'run') return await command.run(context);
    if (command.name === 'tell') {
      context.print(command.text);
      return 0;
    }
    await loadServer();
    return undefined;
  } catch (error) {
    const failure = failureOf(error);
    if (failure === undefined) throw error;
    for (const line of failure.lines) context.tell(`leasehold: ${line}`);
    if (error instanceof UsageError) context.tell(helpHint(args));
    return failure.exitCode;
  }
}
