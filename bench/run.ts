import { cycles } from './parts/cycles.ts';
import { handOut } from './parts/hand-out.ts';
import { idle } from './parts/idle.ts';
import { peers } from './parts/peers.ts';
import { startDatabases } from './support/databases.ts';
import { circumstances } from './support/machine.ts';
import { type Counts, type Floor, type Part, type Row, renderReport } from './support/report.ts';

/**
 * Measures what is promised, on a Postgres of its own. `npm run bench` runs all and writes bench/RESULTS.md; `npm run bench -- cycles idle`
 * runs those parts, and `--quick` runs them with so little of everything that the figures say nothing.
 */
const PARTS: Readonly<Record<string, Part>> = { cycles, peers, 'hand-out': handOut, idle };

const FULL: Counts = {
  rounds: 5,
  seconds: 4,
  rowsMany: 1_000_000,
  rowsSome: 50_000,
  callersMany: 5_000,
  isQuick: false,
};
const QUICK: Counts = { rounds: 1, seconds: 1, rowsMany: 5_000, rowsSome: 1_000, callersMany: 200, isQuick: true };

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
for (const [name, part] of Object.entries(PARTS)) {
  if (names.length > 0 && !names.includes(name)) continue;
  const beganAt = performance.now();
  const report = await part(isQuick ? QUICK : FULL);
  console.error(`${name}: ${((performance.now() - beganAt) / 1_000).toFixed(0)} s`);
  rows.push(...report.rows);
  floors.push(...report.floors);
}
const text = [...lines, '', renderReport({ rows, floors }), ''].join('\n');
console.log(text);

async function versionOf(): Promise<string> {
  await using postgres = await startDatabases();
  return postgres.version;
}
