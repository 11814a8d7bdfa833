import { spawn } from 'node:child_process';
import { join } from 'node:path';
import type { Test } from 'tap';
import { execute } from '../../src/cli/execute.ts';
import { freshDatabase, startMain } from './process.ts';

const LEASEHOLD = join(import.meta.dirname, '..', '..', 'src', 'cli', 'leasehold.ts');

export const OPERATOR_KEY = 'operator-key-of-this-process';

export type Said = { readonly code: number | undefined; readonly out: string; readonly err: string };
export type Given = {
  readonly environment?: Readonly<Record<string, string>>;
  readonly input?: string;
  readonly interrupted?: AbortSignal;
  /** Told of all that was printed so far, and of what was told, as more comes. */
  readonly onOutput?: (out: string, err: string) => void;
};

/** A command in this process: what it printed, what it told, its exit code. */
export async function leasehold(args: string | readonly string[], given: Given = {}): Promise<Said> {
  let [out, err] = ['', ''];
  const code = await execute(
    typeof args === 'string' ? args.split(' ') : args,
    {
      environment: given.environment ?? {},
      print(text) {
        out += text;
        given.onOutput?.(out, err);
      },
      tell(line) {
        err += `${line}\n`;
        given.onOutput?.(out, err);
      },
      readInput: async () => given.input ?? '',
      interrupted: () => given.interrupted ?? new AbortController().signal,
    },
    async () => {
      throw new Error('no server is to be loaded');
    },
  );
  return { code, out, err };
}

/** The same in a shell, as typed: `leasehold` is the command of this checkout. `onOutput` is told of all that was printed so far. */
export function inShell(
  script: string,
  environment: Readonly<Record<string, string>>,
  onOutput: (out: string) => void = () => {},
): Promise<Said> {
  const given = `leasehold() { '${process.execPath}' '${LEASEHOLD}' "$@"; }\nset -o pipefail\n`;
  const child = spawn('bash', ['-c', `${given}${script}`], {
    env: { PATH: process.env.PATH, ...environment },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let [out, err] = ['', ''];
  child.stdout.setEncoding('utf8').on('data', (chunk) => {
    out += chunk;
    onOutput(out);
  });
  child.stderr.setEncoding('utf8').on('data', (chunk) => {
    err += chunk;
  });
  return new Promise((resolve) => child.once('close', (code) => resolve({ code: code ?? -1, out, err })));
}

/** A server in a process of its own, with an environment; commands ask it, and are refused nothing unless told so. */
export async function commandPlace(t: Test) {
  const server = await startMain(t, { DATABASE_URL: await freshDatabase(t), LEASEHOLD_API_KEY: OPERATOR_KEY });
  const access = { LEASEHOLD_URL: server.url, LEASEHOLD_API_KEY: OPERATOR_KEY };
  const made = await leasehold('environments create production -q', { environment: access });
  const environment = { ...access, ANTHROPIC_ENVIRONMENT_ID: made.out.trim() };
  const run = async (args: string | readonly string[], given: Given = {}) => {
    const said = await leasehold(args, { environment, ...given });
    t.strictSame([said.code, said.err], [0, ''], `${args}`);
    return said.out;
  };
  const json = async (args: string) => JSON.parse(await run(`${args} --json`));
  return { server, environment, id: made.out.trim(), run, json };
}
