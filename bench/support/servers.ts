import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { closing } from './closing.ts';

const START_MS_MAX = 30_000;
const STOP_MS_MAX = 20_000;
const LOG_CHARACTERS_KEPT = 4_000;

/** An API key that the servers are started with. */
export const OPERATOR_KEY = 'operator-key-of-the-bench';

/** A process that serves, until it is disposed of. */
export type Server = AsyncDisposable & {
  readonly url: string;
  readonly pid: number;
  signal(name: NodeJS.Signals): void;
};

export type ServerOptions = {
  /** What is in its environment beside PATH. */
  readonly environment?: Readonly<Record<string, string>>;
  readonly nodeOptions?: readonly string[];
  /** Told of each line that it writes. By default complaints are shown: what complains is not what is to be measured. */
  readonly onLine?: (line: string) => void;
};

/** Starts a script of Node's that logs `listening on <address>`; `script` as seen from the root of the project. */
export async function startServer(script: string, options: ServerOptions = {}): Promise<Server> {
  const path = new URL(`../../${script}`, import.meta.url).pathname;
  const child = spawn(process.execPath, [...(options.nodeOptions ?? []), path], {
    env: { PATH: process.env.PATH, ...options.environment },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const stop = closing(() => end(child));
  try {
    const url = await listening(child, script, options.onLine ?? ((line) => showComplaint(script, line)));
    if (child.pid === undefined) throw new Error(`${script} has no process`);
    return { url, pid: child.pid, signal: (name) => void child.kill(name), [Symbol.asyncDispose]: stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

/** `src/main.ts`, or the control, as shipped. */
export const startWorkServer = (
  databaseUrl: string,
  script = 'src/main.ts',
  options: Omit<ServerOptions, 'environment'> = {},
): Promise<Server> =>
  startServer(script, {
    ...options,
    environment: { DATABASE_URL: databaseUrl, LEASEHOLD_API_KEY: OPERATOR_KEY, PORT: '0' },
  });

function showComplaint(script: string, line: string): void {
  if (/"level":[456]0/.test(line)) console.error(`${script}: ${line}`);
}

/** The address that it logs. */
function listening(child: ChildProcess, script: string, onLine: (line: string) => void): Promise<string> {
  const { promise, resolve, reject } = Promise.withResolvers<string>();
  let said = '';
  const fail = () => reject(new Error(`${script} did not start: ${said}`));
  const late = setTimeout(fail, START_MS_MAX);
  child.once('exit', fail);
  const { stdout, stderr } = child;
  if (stdout === null || stderr === null) throw new Error('a server without its output');
  createInterface({ input: stdout }).on('line', (line) => {
    said = `${said}${line}\n`.slice(-LOG_CHARACTERS_KEPT);
    const address = /listening on (http:[^"\s]+)/.exec(line)?.[1];
    if (address !== undefined) resolve(address);
    onLine(line);
  });
  stderr.on('data', (chunk) => {
    said = `${said}${chunk}`.slice(-LOG_CHARACTERS_KEPT);
    process.stderr.write(chunk);
  });
  return promise.finally(() => clearTimeout(late));
}

async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = once(child, 'exit');
  child.kill('SIGTERM');
  const late = setTimeout(() => child.kill('SIGKILL'), STOP_MS_MAX);
  await ended;
  clearTimeout(late);
}
