import { execFileSync, fork } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { sql } from 'kysely';
import type { Database } from '../../src/db/connect.ts';
import type { PeerAnswer, PeerCommand } from '../peers/serve.ts';
import type { Contender } from './contenders.ts';
import { cpuSeconds, cpuSecondsOfFamily } from './cpu.ts';

const JOBS_FIRST = 500;
const BENCH = new URL('..', import.meta.url);

/** Installs what is compared with, where it is missing: none of it is a dependency of the project. */
export function installPeers(): void {
  if (existsSync(new URL('node_modules/.package-lock.json', BENCH))) return;
  console.error('installing what is compared with');
  execFileSync('npm', ['ci', '--no-audit', '--no-fund'], { cwd: BENCH, stdio: ['ignore', 'ignore', 'inherit'] });
}

/** Another queue on the same Postgres, in a process of its own, without HTTP. */
export function peer(
  name: string,
  script: string,
  url: string,
  database: Database,
  postgresPid: number,
): Contender & AsyncDisposable {
  const child = fork(new URL(`peers/${script}`, BENCH), [url]);
  const pace = new Map<number, number>();
  const { pid = Number.NaN } = child;
  const ended = once(child, 'exit').then((): PeerAnswer => ({ error: `${name} has ended` }));
  const tell = async (command: PeerCommand): Promise<number> => {
    const answered = once(child, 'message').then(([message]) => message as PeerAnswer);
    child.send(command);
    const answer = await Promise.race([answered, ended]);
    if ('error' in answer) throw new Error(answer.error);
    return answer.seconds;
  };
  return {
    name,
    async settle() {
      await database.rows(sql`vacuum analyze`);
    },
    async run(clients, seconds) {
      const perSecond = pace.get(clients);
      const jobs = perSecond === undefined ? JOBS_FIRST : Math.max(clients, Math.round(perSecond * seconds));
      await tell({ verb: 'prepare', clients, jobs });
      const before = { load: cpuSeconds(pid), postgres: cpuSecondsOfFamily(postgresPid) };
      const took = await tell({ verb: 'run', clients, jobs });
      pace.set(clients, jobs / took);
      const cpu = {
        server: 0,
        load: cpuSeconds(pid) - before.load,
        postgres: cpuSecondsOfFamily(postgresPid) - before.postgres,
      };
      return { seconds: took, cpuSeconds: cpu.load, cpu, calls: {}, done: jobs, requests: jobs };
    },
    async [Symbol.asyncDispose]() {
      if (child.exitCode !== null || child.signalCode !== null) return;
      child.disconnect();
      await ended;
    },
  };
}
