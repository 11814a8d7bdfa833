import type { CommandUnknownOpts } from '@commander-js/extra-typings';
import { ENVIRONMENT, type Kit } from '../kit.ts';
import { instant, record, table, visible } from '../table.ts';
import { repeat } from '../watch.ts';

export function figuresCommands(program: CommandUnknownOpts, { asking, ask, checks }: Kit): void {
  asking(program, 'stats', 'what is queued, and how many workers poll', ['stats', 'stats --watch', 'stats --json'])
    .addOption(ENVIRONMENT)
    .option('--watch', 'a line each time, until Ctrl-C')
    .option('--interval-ms <n>', 'how often, with --watch (1000)', checks.integer('interval-ms', 100, 3_600_000))
    .action(({ watch, intervalMs = 1_000, ...options }) =>
      ask(options, async (desk) => {
        const id = await desk.environmentId();
        if (!watch) {
          const stats = await desk.work.workStats(id);
          const { depth, pending, workers_polling, oldest_queued_at } = stats;
          const fields = {
            depth,
            pending,
            'workers polling': workers_polling,
            'oldest queued': instant(oldest_queued_at),
          };
          return desk.show(stats, () => record(fields));
        }
        await repeat(desk, intervalMs, async () => {
          const stats = await desk.work.workStats(id);
          const { depth, pending, workers_polling: polling, oldest_queued_at: oldest } = stats;
          const inWords = `depth ${depth}, pending ${pending}, workers polling ${polling}, oldest ${instant(oldest) ?? '-'}`;
          desk.context.print(`${desk.isJson ? JSON.stringify(stats) : inWords}\n`);
          return false;
        });
      }),
    );

  asking(program, 'workers', 'who polled within the hour or holds an item, the last seen first', ['workers'])
    .addOption(ENVIRONMENT)
    .action((options) =>
      ask(options, async ({ control, environmentId, show }) => {
        const answer = await control.listWorkers(await environmentId());
        const rows = answer.data.flatMap(({ worker_id, last_poll_at, holds }) => {
          const held = holds.map((each) => [each.work_id, each.session_id, each.state, instant(each.lease_expires_at)]);
          return (held.length === 0 ? [[]] : held).map((each) => [worker_id, instant(last_poll_at), ...each]);
        });
        show(answer, () => table(['WORKER', 'LAST POLL', 'HOLDS', 'SESSION', 'STATE', 'LEASE EXPIRES'], rows));
      }),
    );

  asking(program, 'diagnosis', 'why work is not moving, with the evidence', ['diagnosis', 'diagnosis -e production'])
    .addOption(ENVIRONMENT)
    .action((options) =>
      ask(options, async ({ control, environmentId, show }) => {
        const found = await control.diagnoseEnvironment(await environmentId());
        show(found, () =>
          found.data.length === 0
            ? 'no problem found\n'
            : found.data
                .map(({ code, message, evidence }) => {
                  const lines = Object.entries(evidence).map(([name, value]) => `  ${name}: ${visible(`${value}`)}\n`);
                  return `${code}: ${visible(message)}\n${lines.join('')}`;
                })
                .join(''),
        );
      }),
    );
}
