import { type ChildProcess, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pg from 'pg';
import type { Test } from 'tap';
import { databaseUrl, OPERATOR_KEY, until } from './harness.ts';
import type { Place } from './agent-side.ts';

const MAIN = join(import.meta.dirname, '..', '..', 'src', 'main.ts');
const LEASEHOLD = join(import.meta.dirname, '..', '..', 'src', 'cli', 'leasehold.ts');
const CONTENDER = join(import.meta.dirname, 'contender-process.ts');
const WORKER = join(import.meta.dirname, 'worker-process.ts');
/** A first start on PGlite takes seconds where the machine is busy. */
const START_MS_MAX = 60_000;
export const EXIT_MS_MAX = 60_000;

export type Ended = { readonly code: number | null; readonly signal: NodeJS.Signals | null };

export type Process = {
  readonly child: ChildProcess;
  /** What it has written so far, both streams. */
  output(): string;
  /** The log: every line of stdout that is not part of the block of a first start. */
  log(): Record<string, unknown>[];
  /** How it ended; fails loudly when it does not. */
  ended(): Promise<Ended>;
};

export type Listening = Process & { readonly url: string };

/** `node src/main.ts` with these variables and no others of ours. Killed at the end of the test if need be. */
export const runMain = (t: Test, variables: Record<string, string>): Process => runNode(t, [MAIN], variables);

/** The command `leasehold`, likewise. */
export const runLeasehold = (t: Test, args: readonly string[], variables: Record<string, string>): Process =>
  runNode(t, [LEASEHOLD, ...args], variables);

/** The official worker, likewise. */
export const startWorker = (t: Test, { url, environment, environmentKey }: Place, folder: string): Process =>
  runNode(t, [WORKER], {
    BASE_URL: url,
    ENVIRONMENT_ID: environment.id,
    ENVIRONMENT_KEY: environmentKey,
    FOLDER: folder,
  });

type Contended = { readonly url: string; readonly environmentId: string; readonly databaseUrl: string };

/** One that holds a lock for a call that never ends, likewise. */
export const startContender = (t: Test, { url, environmentId, databaseUrl }: Contended): Process =>
  runNode(t, [CONTENDER], {
    BASE_URL: url,
    API_KEY: OPERATOR_KEY,
    ENVIRONMENT_ID: environmentId,
    PAID_URL: databaseUrl,
  });

const runNode = (t: Test, args: readonly string[], variables: Record<string, string>): Process =>
  runCommand(t, process.execPath, args, variables);

/** Any command, likewise. */
export function runCommand(
  t: Test,
  command: string,
  args: readonly string[],
  variables: Record<string, string>,
): Process {
  const env = { PATH: process.env.PATH, PORT: '0', ...variables };
  const child = spawn(command, args, { env, stdio: ['ignore', 'pipe', 'pipe'] });
  let output = '';
  let ended: Ended | undefined;
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding('utf8').on('data', (chunk) => {
      output += chunk;
    });
  }
  child.once('close', (code, signal) => {
    ended = { code, signal };
  });
  const end = async (): Promise<Ended> => {
    await until(`the process to end; it wrote: ${output}`, () => ended !== undefined, EXIT_MS_MAX);
    return ended ?? { code: null, signal: null };
  };
  t.teardown(async () => {
    child.kill('SIGKILL');
    await end();
  });
  return {
    child,
    output: () => output,
    log: () => output.split('\n').flatMap((line) => (line.startsWith('{') ? [JSON.parse(line)] : [])),
    ended: end,
  };
}

/** The same, waiting until it listens. */
export const startMain = (t: Test, variables: Record<string, string>): Promise<Listening> =>
  listening(runMain(t, variables));

export async function listening(main: Process): Promise<Listening> {
  const address = () => main.log().find((line) => typeof line.address === 'string')?.address;
  const over = () => main.child.exitCode !== null || main.child.signalCode !== null;
  await until('the server to listen', () => address() !== undefined || over(), START_MS_MAX);
  if (over()) throw new Error(`the server ended early: ${main.output()}`);
  return { ...main, url: String(address()) };
}

/** A folder of the test's own, gone at the end. */
export function testFolder(t: Test): string {
  const folder = mkdtempSync(join(tmpdir(), 'leasehold-test-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** An empty database of the test's own: the server's schema has a fixed name. Gone at the end. */
export async function freshDatabase(t: Test): Promise<string> {
  const name = `test_${randomBytes(6).toString('hex')}`;
  const run = async (statement: string) => {
    const client = new pg.Client({ connectionString: databaseUrl() });
    await client.connect();
    await client.query(statement);
    await client.end();
  };
  await run(`create database ${name}`);
  t.teardown(() => run(`drop database ${name} with (force)`));
  const url = new URL(databaseUrl());
  url.pathname = `/${name}`;
  return url.href;
}

/** Ends the connections to this database that listen; answers how many. */
export async function endListening(client: pg.Client): Promise<number | null> {
  const { rowCount } = await client.query(
    `select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and application_name = 'leasehold listen'`,
  );
  return rowCount;
}

/** One request with a credential (null: none), for servers that are processes. */
export async function request(
  url: string,
  key: string | null,
  body?: unknown,
  // biome-ignore lint/suspicious/noExplicitAny: a test reads what it expects and fails where it is not there
): Promise<{ status: number; headers: Headers; json: any }> {
  const response = await fetch(url, {
    ...(body === undefined ? {} : { method: 'POST', body: JSON.stringify(body) }),
    headers: { 'content-type': 'application/json', ...(key === null ? {} : { 'x-api-key': key }) },
  });
  return { status: response.status, headers: response.headers, json: await response.json() };
}
