import type { CommandUnknownOpts } from '@commander-js/extra-typings';
import { ENVIRONMENT, given, type Kit } from '../kit.ts';
import { instant, table } from '../table.ts';

export function locksCommands(program: CommandUnknownOpts, { asking, ask, checks }: Kit): void {
  const locks = program.command('locks').description('who holds what of an environment');

  asking(locks, 'list', 'what is held now, by name', ['locks list', 'locks list -e production --json'])
    .addOption(ENVIRONMENT)
    .option('--limit <n>', 'at most so many (20)', checks.integer('limit', 1, 1_000))
    .option('--page <page>', 'the next_page of the answer before')
    .action(({ limit, page, ...options }) =>
      ask(options, async ({ control, environmentId, showPage }) => {
        const answer = await control.listLocks(await environmentId(), given({ limit, page }));
        const rows = answer.data.map((lock) => [lock.name, lock.owner, `${lock.token}`, instant(lock.expires_at)]);
        showPage(answer, () => table(['NAME', 'OWNER', 'TOKEN', 'EXPIRES'], rows));
      }),
    );

  asking(locks, 'release <name>', "lets a lock go in its holder's stead, by its token", [
    'locks release summary:42 --token 7',
  ])
    .addOption(ENVIRONMENT)
    .requiredOption('--token <token>', 'as the list tells it', checks.integer('token', 1, Number.MAX_SAFE_INTEGER))
    .action((name, { token, ...options }) =>
      ask(options, async ({ control, environmentId, show }) => {
        const answer = await control.releaseLock(await environmentId(), name, { token: token ?? 0 });
        show(answer, () => (answer.released ? `${name} is released\n` : `${name} was not held under that token\n`));
      }),
    );
}
