import { readFile } from 'node:fs/promises';
import type { CommandUnknownOpts } from '@commander-js/extra-typings';
import { Option } from '@commander-js/extra-typings';
import { WORK_KINDS } from '../../queue/items.ts';
import { LIMITS } from '../../queue/limits.ts';
import { UsageError } from '../command.ts';
import type { Context } from '../context.ts';
import { ENVIRONMENT, given, type Kit, QUIET } from '../kit.ts';
import { parseJson } from '../options.ts';
import { visible } from '../table.ts';

export function enqueueCommand(program: CommandUnknownOpts, { asking, ask, checks }: Kit): void {
  asking(program, 'enqueue <session>', 'work for a session; a live item of the same session and kind answers', [
    'enqueue session-1',
    `enqueue session-2 --input '{"command":"make report"}' --request-id 'report 2026-11'`,
    'enqueue session-3 -e production --not-before 2026-12-01T06:00:00Z --max-hand-outs 3',
    'WORK=$(leasehold enqueue session-4 --quiet)',
  ])
    .addOption(ENVIRONMENT)
    .addOption(QUIET)
    .addOption(new Option('--kind <kind>', 'what the work is (tool_exec)').choices(WORK_KINDS))
    .option('--input <json>', 'what it is about, any JSON', checks.json('input'))
    .addOption(new Option('--input-file <file>', 'the same from a file; - is stdin').conflicts('input'))
    .option('--metadata <key=value>', 'may be repeated', checks.pairs('metadata'))
    .option('--priority <n>', 'higher first (0)', checks.integer('priority', -LIMITS.priority, LIMITS.priority))
    .option('--not-before <instant>', 'RFC 3339 with an offset: not handed out before')
    .option(
      '--max-hand-outs <n>',
      'handed out so often without finishing, it is set aside',
      checks.integer('max-hand-outs', 1, LIMITS.handOuts),
    )
    .option(
      '--max-attempts <n>',
      'failed so often, it is set aside (what its environment says, or 25)',
      checks.integer('max-attempts', 1, LIMITS.attempts),
    )
    .option('--request-id <id>', 'your name for this work: asked for again, the same item answers')
    .option('--follow-up', 'covered by a live item, it is enqueued when that one ends')
    .action((session, { kind, input, inputFile, metadata, priority, ...rest }) => {
      const { notBefore, maxHandOuts, maxAttempts, requestId, followUp, ...options } = rest;
      ask(options, async ({ control, environmentId, show, context }) => {
        const read = inputFile === undefined ? input : await readJson(inputFile, context);
        const item = await control.enqueueWork(await environmentId(), {
          data: { type: 'session', id: session },
          ...given({ kind, input: read, metadata, priority, not_before: notBefore }),
          ...given({ max_hand_outs: maxHandOuts, max_attempts: maxAttempts }),
          ...given({ request_id: requestId, follow_up: followUp }),
        });
        show(item, () => `${item.id} is ${item.state}, for ${visible(item.data.id)}\n`, item.id);
      });
    });
}

/** `-` is stdin. Throws UsageError. */
async function readJson(file: string, context: Context): Promise<unknown> {
  const where = `--input-file ${file}`;
  const text = file === '-' ? context.readInput() : readFile(file, 'utf8');
  const read = await text.catch((cause: Error) => {
    throw new UsageError([`${where}: ${cause.message}`], { cause });
  });
  return parseJson(where, read);
}
