import { execFileSync } from 'node:child_process';
import { cpus, loadavg, totalmem } from 'node:os';

/** Before the bench itself is any of it. */
const [one, five] = loadavg();

/** When, of what, and on what; nothing that names the machine. */
export function circumstances(postgresVersion?: string): string[] {
  const git = (...args: string[]) => execFileSync('git', args, { encoding: 'utf8' }).trim();
  const isChanged =
    git('status', '--porcelain', '--', 'src', 'migrations', 'bench', 'package-lock.json', ':!bench/RESULTS.md') !== '';
  return [
    `${new Date().toISOString().slice(0, 16).replace('T', ' ')} UTC, commit ${git('rev-parse', '--short', 'HEAD')}${isChanged ? ' with changes' : ''}`,
    `${cpus().length} x ${cpus()[0]?.model.trim()}, ${Math.round(totalmem() / 2 ** 30)} GiB; Node ${process.versions.node}${postgresVersion === undefined ? '' : `, Postgres ${postgresVersion}`}`,
    `load before: ${one?.toFixed(2)} over a minute, ${five?.toFixed(2)} over five`,
  ];
}
