import { writeFileSync } from 'node:fs';
import { cycles } from './parts/cycles.ts';
import { fairness } from './parts/fairness.ts';
import { flat } from './parts/flat.ts';
import { handOut } from './parts/hand-out.ts';
import { held } from './parts/held.ts';
import { idle } from './parts/idle.ts';
import { leases } from './parts/leases.ts';
import { peers } from './parts/peers.ts';
import { retention } from './parts/retention.ts';
import { stats } from './parts/stats.ts';
import { closeOnSignals, isClosing } from './support/closing.ts';
import { startDatabases } from './support/databases.ts';
import { circumstances } from './support/machine.ts';
import { type Counts, type Floor, type Part, type Row, renderReport } from './support/report.ts';

/**
 * Measures what is promised, on a Postgres of its own. `npm run bench` runs all and writes bench/RESULTS.md; `npm run bench -- cycles idle`
 * runs those parts, and `--quick` runs them with so little of everything that the figures say nothing.
 */
const PARTS: Readonly<Record<string, Part>> = {
  cycles,
  peers,
  'hand-out': handOut,
  idle,
  flat,
  leases,
  stats,
  fairness,
  held,
  retention,
};

const FULL: Counts = {
  rounds: 3,
  seconds: 4,
  rowsMany: 1_000_000,
  rowsSome: 50_000,
  callersMany: 5_000,
  isQuick: false,
};
const QUICK: Counts = { rounds: 1, seconds: 1, rowsMany: 20_000, rowsSome: 1_000, callersMany: 200, isQuick: true };

const HEAD = `# What the bench measured

Written by \`npm run bench\`. Server, Postgres and the load generator share the machine, over the loopback; Postgres is as durable as it is by default.
A figure is the median of its rounds, with the lowest and the highest; a ratio is the median of the rounds' ratios, whose sides were measured one after
the other. What takes how much of the processor stands in the notes.
`;

closeOnSignals();
const given = process.argv.slice(2);
const isQuick = given.includes('--quick');
const names = given.filter((argument) => argument !== '--quick');
const unknown = names.filter((name) => PARTS[name] === undefined);
if (unknown.length > 0) {
  console.error(`no such part: ${unknown.join(', ')}; there are ${Object.keys(PARTS).join(', ')}`);
  process.exit(2);
}

const lines = circumstances(await versionOf());
const rows: Row[] = [];
const floors: Floor[] = [];
const failed: string[] = [];
for (const [name, part] of Object.entries(PARTS)) {
  if (names.length > 0 && !names.includes(name)) continue;
  const beganAt = performance.now();
  try {
    const report = await part(isQuick ? QUICK : FULL);
    rows.push(...report.rows);
    floors.push(...report.floors);
  } catch (error) {
    if (isClosing()) await new Promise(() => {}); // it failed because of that
    console.error(error);
    failed.push(name);
  }
  console.error(`${name}: ${((performance.now() - beganAt) / 1_000).toFixed(0)} s`);
}
const text = renderReport({ rows, floors });
if (isQuick) console.log('With --quick the figures say nothing.\n');
console.log(`${lines.join('\n')}\n\n${text}`);
if (failed.length > 0) {
  console.error(`failed: ${failed.join(', ')}`);
  process.exitCode = 1;
} else if (names.length === 0 && !isQuick) {
  writeFileSync(
    new URL('RESULTS.md', import.meta.url),
    `${HEAD}\n${lines.map((line) => `- ${line}`).join('\n')}\n\n${text}\n`,
  );
}

async function versionOf(): Promise<string> {
  await using postgres = await startDatabases();
  return postgres.version;
}
