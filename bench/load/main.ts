import { cycles } from './cycles.ts';
import { handOuts } from './hand-outs.ts';
import { heartbeats } from './heartbeats.ts';
import { polls } from './polls.ts';
import { requests } from './requests.ts';
import type { Times } from './samples.ts';
import type { Scenario } from './scenario.ts';

/** A load generator: a process that runs one scenario after another for the one that started it, and is bounded by what it is told. */
export const SCENARIOS = { requests, cycles, polls, handOuts, heartbeats } as const;

type Scenarios = typeof SCENARIOS;
export type Options = { [Name in keyof Scenarios]: Parameters<Scenarios[Name]>[0] };

/** Since the scenario began, or since the figures were last taken. */
export type Figures = {
  readonly seconds: number;
  /** Of this process, in that time. */
  readonly cpuSeconds: number;
  readonly calls: Readonly<Record<string, Times>>;
};

/** `finish`: all that was to be done; `stop`: what is under way. Both answer the figures. */
export type Command =
  | { readonly verb: 'prepare'; readonly name: keyof Scenarios; readonly options: unknown }
  | { readonly verb: 'begin' | 'take' | 'finish' | 'stop' };

let scenario: Scenario | undefined;
let [since, cpuSince] = [0, process.cpuUsage()];

function take(): Figures {
  if (scenario === undefined) throw new Error('nothing runs');
  const seconds = (performance.now() - since) / 1_000;
  const { user, system } = process.cpuUsage(cpuSince);
  const calls = Object.fromEntries(Object.entries(scenario.samples).map(([name, samples]) => [name, samples.take()]));
  [since, cpuSince] = [performance.now(), process.cpuUsage()];
  return { seconds, cpuSeconds: (user + system) / 1e6, calls };
}

async function run(command: Command): Promise<Figures | undefined> {
  if (command.verb === 'prepare') {
    const make = SCENARIOS[command.name] as (options: unknown) => Promise<Scenario>;
    scenario = await make(command.options);
    return undefined;
  }
  if (command.verb === 'take') return take();
  if (command.verb === 'begin') {
    [since, cpuSince] = [performance.now(), process.cpuUsage()];
    scenario?.start();
    return undefined;
  }
  if (command.verb === 'stop') scenario?.stop();
  await scenario?.done;
  const figures = take();
  scenario?.close();
  scenario = undefined;
  return figures;
}

function fail(error: unknown): void {
  process.send?.({ error: error instanceof Error ? (error.stack ?? error.message) : String(error) }, () =>
    process.exit(1),
  );
}

process.on('uncaughtException', fail);
process.on('unhandledRejection', fail);
process.on('disconnect', () => process.exit());
process.on('message', (command: Command) => {
  run(command).then((figures) => process.send?.({ figures }), fail);
});
