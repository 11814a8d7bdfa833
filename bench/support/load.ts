import { fork } from 'node:child_process';
import { once } from 'node:events';
import type { Command, Figures, Options } from '../load/main.ts';
import { cpuSeconds, cpuSecondsOfFamily } from './cpu.ts';
import { pause } from './waiting.ts';

const STOP_MS_MAX = 5_000;

/** Whose processor time is noted beside the load generator's: a server's, and Postgres's first process. */
export type Watched = { readonly server?: number | undefined; readonly postgres?: number | undefined };
export type Cpu = { readonly server: number; readonly postgres: number; readonly load: number };
export type Measured = Figures & { readonly cpu: Cpu };

export type Running = {
  /** Since it began, or was last asked. */
  take(): Promise<Measured>;
  /** What is under way is finished first. */
  stop(): Promise<Measured>;
  finish(): Promise<Measured>;
};

export type Load = AsyncDisposable & {
  /** Connects, then begins. One at a time. */
  begin<Name extends keyof Options>(name: Name, options: Options[Name], watched?: Watched): Promise<Running>;
};

/** A load generator in a process of its own. */
export function startLoad(): Load {
  const child = fork(new URL('../load/main.ts', import.meta.url), { serialization: 'advanced' });
  let answer: { resolve(figures: Figures | undefined): void; reject(error: Error): void } | undefined;
  child.on('message', (message: { error?: string; figures?: Figures }) => {
    if (message.error === undefined) answer?.resolve(message.figures);
    else fail(new Error(message.error));
  });
  child.on('exit', () => fail(new Error('the load generator has ended')));
  let fault: Error | undefined;
  const fail = (error: Error) => {
    fault ??= error;
    answer?.reject(fault);
  };

  const tell = (command: Command): Promise<Figures | undefined> => {
    if (fault !== undefined) return Promise.reject(fault);
    return new Promise((resolve, reject) => {
      answer = { resolve, reject };
      child.send(command);
    });
  };

  return {
    async begin(name, options, watched = {}) {
      await tell({ verb: 'prepare', name, options });
      let before = read(watched);
      await tell({ verb: 'begin' });
      const ask = (verb: 'take' | 'stop' | 'finish') => async (): Promise<Measured> => {
        const figures = await tell({ verb });
        if (figures === undefined) throw new Error('no figures');
        const after = read(watched);
        const cpu = {
          server: after.server - before.server,
          postgres: after.postgres - before.postgres,
          load: figures.cpuSeconds,
        };
        before = after;
        return { ...figures, cpu };
      };
      return { take: ask('take'), stop: ask('stop'), finish: ask('finish') };
    },
    async [Symbol.asyncDispose]() {
      if (child.exitCode !== null || child.signalCode !== null) return;
      const ended = once(child, 'exit');
      child.disconnect();
      const late = setTimeout(() => child.kill('SIGKILL'), STOP_MS_MAX);
      await ended;
      clearTimeout(late);
    },
  };
}

const read = ({ server, postgres }: Watched) => ({
  server: server === undefined ? 0 : cpuSeconds(server),
  postgres: postgres === undefined ? 0 : cpuSecondsOfFamily(postgres),
});

/** For so long, then no more. */
export async function runFor(ms: number, running: Running): Promise<Measured> {
  await pause(ms);
  return running.stop();
}
