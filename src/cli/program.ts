import { Argument, Command as Parser, CommanderError, type CommandUnknownOpts } from '@commander-js/extra-typings';
import { VERSION } from '../version.ts';
import { type Command, UsageError } from './command.ts';
import { doctorCommand } from './commands/doctor.ts';
import { enqueueCommand } from './commands/enqueue.ts';
import { environmentsCommands } from './commands/environments.ts';
import { figuresCommands } from './commands/figures.ts';
import { keysCommands } from './commands/keys.ts';
import { locksCommands } from './commands/locks.ts';
import { processCommands } from './commands/processes.ts';
import { settingsCommands } from './commands/settings.ts';
import { workCommands } from './commands/work.ts';
import { candidates, SCRIPTS, SHELLS } from './complete.ts';
import { createKit, type Kit, withExamples } from './kit.ts';

const AFTER = `
LEASEHOLD_URL and LEASEHOLD_API_KEY say which server, and who asks;
ANTHROPIC_ENVIRONMENT_ID is the environment where none is named. The key is not
taken as an argument: every user of the machine could read it there.

Exit codes: 0 done, 1 refused or failed, 2 wrong use, 3 server out of reach.
`;

/** Reads the command line, without its first two words. Throws UsageError, which names all that is wrong. */
export function parseCommand(args: readonly string[]): Command {
  if (args.length === 0) return { name: 'serve' };
  const problems: string[] = [];
  const chosen: Command[] = [];
  let told = '';
  const kit = createKit((command) => chosen.push(command), problems);
  const program = createProgram(kit, (text) => {
    told += text;
  });
  try {
    program.parse(args, { from: 'user' });
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error;
    if (error.exitCode === 0) return { name: 'tell', text: told };
    throw new UsageError([...problems, sayingOf(error, program, args)], { cause: error });
  }
  const [command] = chosen;
  if (problems.length > 0 || command === undefined) throw new UsageError(problems);
  return command;
}

/** Where the words that name a command lead: its help is nearer than that of all. */
export function helpHint(args: readonly string[]): string {
  let command = createProgram(
    createKit(() => {}, []),
    () => {},
  );
  let path = command.name();
  for (const arg of args) {
    const next = command.commands.find((each) => each.name() === arg);
    if (next === undefined) break;
    [command, path] = [next, `${path} ${arg}`];
  }
  return `${path} --help tells how it is called`;
}

function createProgram(kit: Kit, writeOut: (text: string) => void): CommandUnknownOpts {
  const program = new Parser('leasehold')
    .description('A self-hosted work API server, and the commands to run it. Without a command it serves.')
    .version(VERSION, '--version')
    .addHelpText('after', AFTER)
    .configureOutput({ writeOut, writeErr: () => {} })
    .exitOverride();
  program.commandsGroup('Run here:');
  processCommands(program, kit);
  program.commandsGroup('Ask a server:');
  environmentsCommands(program, kit);
  keysCommands(program, kit);
  enqueueCommand(program, kit);
  workCommands(program, kit);
  figuresCommands(program, kit);
  locksCommands(program, kit);
  settingsCommands(program, kit);
  doctorCommand(program, kit);
  program.commandsGroup('Other:');
  completionCommands(program, kit);
  return program;
}

function completionCommands(program: Parser, { choose }: Kit): void {
  const completion = program
    .command('completion')
    .description('what a shell reads to complete these commands')
    .addArgument(new Argument('<shell>').choices(SHELLS))
    .action((shell) => choose({ name: 'tell', text: SCRIPTS[shell] }));
  withExamples(completion, ['completion bash >> ~/.bashrc', 'completion zsh >> ~/.zshrc']);
  program.command('complete [words...]', { hidden: true }).action((words) =>
    choose({
      name: 'tell',
      text: candidates(program, words)
        .map((word) => `${word}\n`)
        .join(''),
    }),
  );
}

/** Commander's words, in one line. */
function sayingOf(error: CommanderError, program: CommandUnknownOpts, args: readonly string[]): string {
  const group = program.commands.find((command) => command.name() === args[0]);
  if (error.code === 'commander.help' && group !== undefined) {
    return `${group.name()} needs a command: ${group.commands.map((command) => command.name()).join(', ')}`;
  }
  return error.message.replace(/^error: /, '').replaceAll('\n', ' ');
}
