import type { CommandUnknownOpts } from '@commander-js/extra-typings';
import { Option } from '@commander-js/extra-typings';
import type { WorkClient } from '../../client/work-client.ts';
import { given, type Kit, QUIET } from '../kit.ts';
import { instant, pairs, record, table } from '../table.ts';

type Environment = Awaited<ReturnType<WorkClient['retrieveEnvironment']>>;

export function environmentsCommands(program: CommandUnknownOpts, { asking, ask, checks }: Kit): void {
  const environments = program.command('environments').description('what work belongs to, and workers poll');

  asking(environments, 'list', 'the newest first', ['environments list', 'environments list --all --json'])
    .option('--all', 'archived ones, too')
    .option('--limit <n>', 'at most so many (20)', checks.integer('limit', 1, 1_000))
    .option('--page <page>', 'the next_page of the answer before')
    .action(({ all, limit, page, ...options }) =>
      ask(options, async ({ work, showPage }) => {
        const answer = await work.listEnvironments(given({ include_archived: all, limit, page }));
        showPage(answer, () =>
          table(
            ['ID', 'NAME', 'TYPE', 'CREATED', 'ARCHIVED'],
            answer.data.map((each) => [
              ...[each.id, each.name, each.config.type],
              ...[instant(each.created_at), instant(each.archived_at)],
            ]),
          ),
        );
      }),
    );

  asking(environments, 'create <name>', 'a new one; its name is its own until it is archived', [
    'environments create production',
    'environments create turns --type cloud --metadata team=agents',
    'export ANTHROPIC_ENVIRONMENT_ID=$(leasehold environments create production --quiet)',
  ])
    .addOption(QUIET)
    .addOption(
      new Option('--type <type>', "self_hosted: workers poll it; cloud: the platform's own executors claim")
        .choices(['self_hosted', 'cloud'] as const)
        .default('self_hosted' as const),
    )
    .option('--description <text>', 'for people')
    .option('--metadata <key=value>', 'may be repeated', checks.pairs('metadata'))
    .action((name, { type, description, metadata, ...options }) =>
      ask(options, async ({ work, show }) => {
        const body = { name, config: { type }, ...given({ description, metadata }) };
        const made = await work.createEnvironment(body);
        show(made, () => inWords(made), made.id);
      }),
    );

  asking(environments, 'show <environment>', 'one of them, by its name or id', ['environments show production']).action(
    (environment, options) =>
      ask(options, async ({ work, idOf, show }) => {
        const found = await work.retrieveEnvironment(await idOf(environment));
        show(found, () => inWords(found));
      }),
  );

  asking(environments, 'update <environment>', 'changes what is given, and keeps the rest', [
    'environments update production --name staging',
    'environments update production --metadata team=agents --metadata note=',
  ])
    .option('--name <name>', 'another name')
    .option('--description <text>', 'for people')
    .option(
      '--metadata <key=value>',
      'merged; an empty value deletes the key; may be repeated',
      checks.pairs('metadata'),
    )
    .action((environment, { name, description, metadata, ...options }) =>
      ask(options, async ({ work, idOf, show }) => {
        const body = given({ name, description, metadata });
        const changed = await work.updateEnvironment(await idOf(environment), body);
        show(changed, () => inWords(changed));
      }),
    );

  asking(environments, 'archive <environment>', 'no new work and no changes; what is there goes on, the name is free', [
    'environments archive production',
  ]).action((environment, options) =>
    ask(options, async ({ work, idOf, show }) => {
      const archived = await work.archiveEnvironment(await idOf(environment));
      show(archived, () => inWords(archived));
    }),
  );

  asking(
    environments,
    'delete <environment>',
    'with its keys and its finished work; refused while some is unfinished',
    ['environments delete env_V1StGXR8Z5jdHi6BmyT'],
  ).action((environment, options) =>
    ask(options, async ({ work, idOf, show }) => {
      const deleted = await work.deleteEnvironment(await idOf(environment));
      show(deleted, () => `${deleted.id} is deleted\n`);
    }),
  );
}

const inWords = (environment: Environment): string =>
  record({
    id: environment.id,
    name: environment.name,
    type: environment.config.type,
    description: environment.description,
    metadata: pairs(environment.metadata),
    created: instant(environment.created_at),
    archived: instant(environment.archived_at),
  });
