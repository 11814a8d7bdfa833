import type { CommandUnknownOpts } from '@commander-js/extra-typings';
import type { ControlClient } from '../../client/control-client.ts';
import { ENVIRONMENT, type Kit } from '../kit.ts';
import { instant, record } from '../table.ts';

type Settings = Awaited<ReturnType<ControlClient['readSettings']>>;
/** In place of a number: the server's own value. */
const NONE = 'default';

export function settingsCommands(program: CommandUnknownOpts, { asking, ask, problems }: Kit): void {
  asking(program, 'settings', "an environment's own, and what holds", [
    'settings',
    'settings --set max_hand_outs=3 --set retention_days=30',
    `settings -e production --set max_hand_outs=${NONE}`,
  ])
    .addOption(ENVIRONMENT)
    .option('--set <name=number>', `changes one; ${NONE}: the server's own holds; may be repeated`, readSetting)
    .action(({ set, ...options }) =>
      ask(options, async ({ control, environmentId, show }) => {
        const id = await environmentId();
        const settings = set === undefined ? await control.readSettings(id) : await control.changeSettings(id, set);
        show(settings, () => inWords(settings));
      }),
    );

  for (const verb of ['pause', 'resume'] as const) {
    const summary = { pause: 'workers are given nothing; running work goes on', resume: 'hands out again' }[verb];
    asking(program, verb, summary, [verb, `${verb} -e production`])
      .addOption(ENVIRONMENT)
      .action((options) =>
        ask(options, async ({ control, environmentId, show }) => {
          const settings = await control[`${verb}Environment`](await environmentId());
          show(settings, () => inWords(settings));
        }),
      );
  }

  /** Which there are, and their ranges, the server says. */
  function readSetting(given: string, before: Record<string, number | null> = {}): Record<string, number | null> {
    const [, name, value] = /^(\w+)=(\d{1,15}|default)$/.exec(given) ?? [];
    if (name === undefined) {
      problems.push(`--set must be name=number, or name=${NONE}, got ${JSON.stringify(given)}`);
      return before;
    }
    return { ...before, [name]: value === NONE ? null : Number(value) };
  }
}

function inWords({ environment_id, paused_at, settings, effective }: Settings): string {
  const own = new Map(Object.entries(settings));
  const fields = Object.entries(effective).map(([name, value]) => [
    name,
    `${value ?? 'none'}${own.get(name) === null ? '' : ' (its own)'}`,
  ]);
  return record({ environment: environment_id, paused: instant(paused_at), ...Object.fromEntries(fields) });
}
