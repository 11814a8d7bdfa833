import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';

const ticksPerSecond = Number(execFileSync('getconf', ['CLK_TCK'], { encoding: 'utf8' }));

type Stat = { readonly parent: number; readonly own: number; readonly ended: number };

/** Undefined when it has ended. In ticks: its own time, and that of its children which ended. */
function statOf(pid: number | string): Stat | undefined {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, 'utf8');
    // After the name, which may hold anything: the state, the parent, and so on (proc(5)).
    const fields = text.slice(text.lastIndexOf(')') + 2).split(' ');
    const field = (number: number) => Number(fields[number - 3]);
    return { parent: field(4), own: field(14) + field(15), ended: field(16) + field(17) };
  } catch {
    return undefined;
  }
}

/** Seconds of processor time that a process has taken. */
export const cpuSeconds = (pid: number): number => (statOf(pid)?.own ?? Number.NaN) / ticksPerSecond;

/** The same of a process and its children, also of those that have ended: Postgres is one process a connection. */
export function cpuSecondsOfFamily(pid: number): number {
  const self = statOf(pid);
  if (self === undefined) return Number.NaN;
  let ticks = self.own + self.ended;
  for (const entry of readdirSync('/proc')) {
    if (!/^\d+$/.test(entry)) continue;
    const other = statOf(entry);
    if (other?.parent === pid) ticks += other.own;
  }
  return ticks / ticksPerSecond;
}
