import type { CommandUnknownOpts } from '@commander-js/extra-typings';
import type { Check } from '../doctor/check.ts';
import { examine } from '../doctor/examine.ts';
import type { Kit } from '../kit.ts';
import { visible } from '../table.ts';

export function doctorCommand(program: CommandUnknownOpts, { asking, choose }: Kit): void {
  const examples = ['doctor', 'DATABASE_URL=postgres://… leasehold doctor', 'doctor --json'];
  asking(program, 'doctor', 'looks whether all is well, also by a work item in an environment of its own', examples)
    .addHelpText('after', '\nThe database is looked at where DATABASE_URL is set. Exit code 1 when a check fails.\n')
    .action(({ url, json }) =>
      choose({
        name: 'run',
        async run(context) {
          const checks: Check[] = [];
          for await (const check of examine(context.environment, url)) {
            checks.push(check);
            if (!json) context.print(inWords(check));
          }
          const isWell = checks.every(({ status }) => status !== 'fail');
          if (json) context.print(`${JSON.stringify({ is_well: isWell, checks }, null, 2)}\n`);
          return isWell ? 0 : 1;
        },
      }),
    );
}

function inWords({ status, name, message, remedy }: Check): string {
  const line = `${status.padEnd(4)}  ${name}: ${visible(message)}\n`;
  return remedy === undefined ? line : `${line}      ${visible(remedy)}\n`;
}
