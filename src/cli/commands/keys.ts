import type { CommandUnknownOpts } from '@commander-js/extra-typings';
import { Option } from '@commander-js/extra-typings';
import type { ControlClient } from '../../client/control-client.ts';
import { LIMITS } from '../../queue/limits.ts';
import { ENVIRONMENT, given, type Kit } from '../kit.ts';
import { instant, record, table } from '../table.ts';

type Key = Awaited<ReturnType<ControlClient['listApiKeys']>>['data'][number];

const API = new Option('--api', 'API keys, for the whole deployment').conflicts('environment');
const ONLY_KEY = new Option('-q, --quiet', 'print only the key').conflicts('json');

export function keysCommands(program: CommandUnknownOpts, { asking, ask, checks, problems }: Kit): void {
  const keys = program.command('keys').description('environment keys, for workers, and API keys, for operators');
  const expiresIn = checks.integer('expires-in-seconds', 1, LIMITS.keySeconds);

  asking(keys, 'issue <name>', 'a new key, which is shown this once', [
    'keys issue workers',
    'keys issue metered --min-queued-age-ms 30000 --expires-in-seconds 86400',
    'keys issue dashboard --api --role read_only',
    'export ANTHROPIC_ENVIRONMENT_KEY=$(leasehold keys issue workers --quiet)',
  ])
    .addOption(ENVIRONMENT)
    .addOption(API)
    .addOption(ONLY_KEY)
    .option('--expires-in-seconds <n>', 'how long it is valid (a year)', expiresIn)
    .option(
      '--min-queued-age-ms <n>',
      'its workers are offered only what has waited for so long (0)',
      checks.integer('min-queued-age-ms', 0, LIMITS.minQueuedAgeMs),
    )
    .addOption(new Option('--role <role>', 'of an API key (operator)').choices(['operator', 'read_only'] as const))
    .action((name, { api, expiresInSeconds, minQueuedAgeMs, role, ...options }) => {
      if (api && minQueuedAgeMs !== undefined)
        problems.push('--min-queued-age-ms is for environment keys, not for --api');
      if (!api && role !== undefined) problems.push('--role is for API keys: it goes with --api');
      ask(options, async ({ control, environmentId, show }) => {
        const common = { name, ...given({ expires_in_seconds: expiresInSeconds }) };
        const issued = api
          ? await control.issueApiKey({ ...common, ...given({ role }) })
          : await control.issueEnvironmentKey(await environmentId(), {
              ...common,
              ...given({ min_queued_age_ms: minQueuedAgeMs }),
            });
        show(issued, () => record({ key: issued.key, ...fieldsOf(issued) }), issued.key);
      });
    });

  asking(keys, 'list', 'the newest first; never the key itself', ['keys list', 'keys list --api'])
    .addOption(ENVIRONMENT)
    .addOption(API)
    .option('--limit <n>', 'at most so many (20)', checks.integer('limit', 1, LIMITS.pageItems))
    .option('--page <page>', 'the next_page of the answer before')
    .action(({ api, limit, page, ...options }) =>
      ask(options, async ({ control, environmentId, showPage }) => {
        const query = given({ limit, page });
        const answer = api
          ? await control.listApiKeys(query)
          : await control.listEnvironmentKeys(await environmentId(), query);
        showPage(answer, () =>
          table(
            ['ID', 'NAME', 'HINT', api ? 'ROLE' : 'MIN AGE MS', 'EXPIRES', 'LAST USED', 'REVOKED'],
            answer.data.map((key) => [
              ...[key.id, key.name, key.hint === null ? null : `…${key.hint}`, api ? key.role : key.min_queued_age_ms],
              ...[instant(key.expires_at), instant(key.last_used_at), instant(key.revoked_at)],
            ]),
          ),
        );
      }),
    );

  asking(keys, 'rotate <key_id>', 'the next key, while the old one lives on for a while', [
    'keys rotate key_V1StGXR8Z5jdHi6BmyT',
    'keys rotate key_V1StGXR8Z5jdHi6BmyT --api --overlap-seconds 0',
  ])
    .addOption(ENVIRONMENT)
    .addOption(API)
    .addOption(ONLY_KEY)
    .option(
      '--overlap-seconds <n>',
      `how long the old key stays valid (${LIMITS.overlapSecondsDefault})`,
      checks.integer('overlap-seconds', 0, LIMITS.overlapSeconds),
    )
    .option('--expires-in-seconds <n>', 'how long the new one is valid (a year)', expiresIn)
    .action((keyId, { api, overlapSeconds, expiresInSeconds, ...options }) =>
      ask(options, async ({ control, environmentId, show }) => {
        const body = given({ overlap_seconds: overlapSeconds, expires_in_seconds: expiresInSeconds });
        const issued = api
          ? await control.rotateApiKey(keyId, body)
          : await control.rotateEnvironmentKey(await environmentId(), keyId, body);
        show(issued, () => record({ key: issued.key, ...fieldsOf(issued) }), issued.key);
      }),
    );

  asking(keys, 'revoke <key_id>', 'at once, on every replica within a second', [
    'keys revoke key_V1StGXR8Z5jdHi6BmyT',
    'keys revoke key_V1StGXR8Z5jdHi6BmyT --api',
  ])
    .addOption(ENVIRONMENT)
    .addOption(API)
    .action((keyId, { api, ...options }) =>
      ask(options, async ({ control, environmentId, show }) => {
        const revoked = api
          ? await control.revokeApiKey(keyId)
          : await control.revokeEnvironmentKey(await environmentId(), keyId);
        show(revoked, () => record(fieldsOf(revoked)));
      }),
    );
}

const fieldsOf = (key: Key) => ({
  id: key.id,
  name: key.name,
  environment: key.environment_id,
  ...(key.role === null ? { 'min queued age ms': key.min_queued_age_ms } : { role: key.role }),
  expires: instant(key.expires_at),
  'last used': instant(key.last_used_at),
  revoked: instant(key.revoked_at),
});
