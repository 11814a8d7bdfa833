import { type Command as Parser, type CommandUnknownOpts, Option } from '@commander-js/extra-typings';
import type { Command } from './command.ts';
import { type Asked, type Desk, openDesk } from './desk.ts';
import { createChecks } from './options.ts';

export const ENVIRONMENT = new Option(
  '-e, --environment <environment>',
  'by its name or id (ANTHROPIC_ENVIRONMENT_ID)',
);
export const QUIET = new Option('-q, --quiet', 'print only the id').conflicts('json');
const URL_OPTION = new Option('--url <url>', 'the server (LEASEHOLD_URL, or http://127.0.0.1:8080)');
const JSON_OPTION = new Option('--json', 'for programs: the answer as the server gave it');

/** What the commands are made with, for one reading of the arguments. */
export function createKit(choose: (command: Command) => void, problems: string[]) {
  return {
    choose,
    problems,
    checks: createChecks(problems),

    /** A command that asks the server. Examples are lines as they are typed; `leasehold` is put before those that do not hold it. */
    asking: <Usage extends string>(parent: CommandUnknownOpts, usage: Usage, summary: string, examples: string[]) =>
      withExamples((parent as Parser).command(usage).description(summary), examples)
        .addOption(URL_OPTION)
        .addOption(JSON_OPTION),

    /** What it does then: a failure is thrown. */
    ask: (options: Asked, act: (desk: Desk) => Promise<void>) =>
      choose({ name: 'run', run: (context) => act(openDesk(context, options)).then(() => 0) }),
  };
}

export type Kit = ReturnType<typeof createKit>;

export function withExamples<Made extends CommandUnknownOpts>(command: Made, examples: readonly string[]): Made {
  const lines = examples
    .map((example) => `\n  ${example.includes('leasehold ') ? example : `leasehold ${example}`}`)
    .join('');
  command.addHelpText('after', `\nExamples:${lines}\n`);
  return command;
}

/** Only what was given: a field that is undefined is not the same as none. */
export function given<Fields extends Readonly<Record<string, unknown>>>(fields: Fields) {
  type Present = { [Name in keyof Fields]?: Exclude<Fields[Name], undefined> };
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as Present;
}
