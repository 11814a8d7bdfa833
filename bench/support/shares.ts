import { digits, median } from './figures.ts';
import type { Cpu, Measured } from './load.ts';

/** How much of a core each took, in %. */
export function sharesOf(results: readonly Measured[]): string {
  const share = (who: keyof Cpu) => digits(median(results.map(({ cpu, seconds }) => (cpu[who] / seconds) * 100)));
  return `of a core: server ${share('server')} %, Postgres ${share('postgres')} %, load ${share('load')} %`;
}

export const timesOf = (results: readonly Measured[], name: string, q: 'p50' | 'p99'): number[] =>
  results.map(({ calls }) => calls[name]?.[q] ?? Number.NaN);

export const callsPerSecond = (results: readonly Measured[], name: string): number =>
  median(results.map(({ calls, seconds }) => (calls[name]?.count ?? 0) / seconds));
