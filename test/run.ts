import { spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { startPostgres } from './support/postgres.ts';
import { buildTap } from './support/tap.ts';

/** What `npm test` runs: starts one real Postgres for all files, unless DATABASE_URL names another, and runs tap with the arguments given. */
const tap = buildTap();
const given = process.env.DATABASE_URL;
const postgres = given ? undefined : await startPostgres(['fsync=off', 'synchronous_commit=off']);
const { DATABASE_URL: _, ...inherited } = process.env;
const output = join(mkdtempSync(join(tmpdir(), 'leasehold-tap-')), 'output.tap');
const child = spawn(process.execPath, [tap, '--reporter=terse', `--output-file=${output}`, ...process.argv.slice(2)], {
  stdio: 'inherit',
  env: { ...inherited, TEST_DATABASE_URL: given || postgres?.url },
});
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => child.kill(signal));
const status = await new Promise<number>((resolve) => child.once('exit', (code) => resolve(code ?? 1)));
await postgres?.stop();

const tapOutput = readFileSync(output, 'utf8');
// Plain lines, each failure with its diagnostics: some logs keep only these.
for (const [failure] of tapOutput.matchAll(/^ *not ok .*(?:\n *---\n(?:.*\n)*? *\.\.\.$)?/gm)) console.log(failure);
const counts = /^# \{ total: \d+, pass: (\d+)(?:, fail: (\d+))?/m.exec(tapOutput);
console.log(`\n${counts?.[1] ?? 0} passed, ${counts?.[2] ?? 0} failed`);
rmSync(dirname(output), { recursive: true, force: true });
process.exitCode = status;
