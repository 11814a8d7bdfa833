import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import pg from 'pg';
import t, { type Test } from 'tap';
import { databaseUrl, until } from './support/harness.ts';

const run = promisify(execFile);
const root = new URL('..', import.meta.url).pathname;
const readme = readFileSync(join(root, 'README.md'), 'utf8');

/** A fenced block of the README by what its fence says. */
function block(info: string, containing = ''): string {
  for (const [, found, code] of readme.matchAll(/^```(.*)\n([\s\S]*?)^```$/gm)) {
    if (found === info && code?.includes(containing)) return code.trim();
  }
  throw new Error(`README.md has no block ${info} with ${containing}`);
}

const inNode = (code: string, env: NodeJS.ProcessEnv) =>
  run(process.execPath, ['--input-type=module-typescript', '-e', code], { cwd: root, env, timeout: 30_000 });

t.test('the start command, its pasted block and the SDK example work as the README says', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'leasehold-readme-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const [install, start] = block('sh', 'npm start').split(' && ');
  t.equal(install, 'npm ci');
  const server = spawn('sh', ['-c', `exec ${start}`], {
    cwd: root,
    env: { PATH: process.env.PATH, HOME: folder, DATA_DIR: join(folder, 'data'), PORT: '0' },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  t.teardown(() => end(server));
  let printed = '';
  server.stdout.on('data', (chunk) => {
    printed += chunk;
  });
  await until('the printed block', () => printed.includes('Anthropic-Worker-ID'), 60_000);
  const pasted = printed.slice(printed.indexOf('export '));
  const exports = pasted.split('\n').filter((line) => line.startsWith('export '));
  const [enqueue] = pasted.slice(pasted.indexOf('curl')).split('\n\n');

  const enqueued = await run('sh', ['-c', [...exports, enqueue].join('\n')]);
  t.match(JSON.parse(enqueued.stdout), { state: 'queued', data: { id: 'session-1' } });
  const env = Object.fromEntries(exports.map((line) => line.slice('export '.length).split('=', 2) as [string, string]));
  const worked = await inNode(block('ts worker'), env);
  t.match(worked.stdout, 'working on session-1\n');

  const made = await run('sh', ['-c', [...exports, block('sh operator')].join('\n')]);
  t.match(JSON.parse(made.stdout), { type: 'environment', name: 'production', config: { type: 'self_hosted' } });
  t.equal(await end(server), 0, 'SIGTERM ends it cleanly');
});

t.test('the library example runs against a real Postgres', async (t) => {
  const name = await freshDatabase(t);
  const url = new URL(databaseUrl());
  url.pathname = `/${name}`;
  const { stdout } = await inNode(block('ts library'), { DATABASE_URL: url.href });
  t.equal(stdout, 'handed out session-1\n');
});

t.test('CI runs the test command of the README', async (t) => {
  const [, command] = block('sh', 'npm test').split(' && ');
  t.ok(
    readFileSync(join(root, '.ci/run'), 'utf8')
      .split('\n')
      .includes(command ?? 'none'),
  );
});

async function freshDatabase(t: Test): Promise<string> {
  const name = `readme_${randomBytes(6).toString('hex')}`;
  const client = new pg.Client({ connectionString: databaseUrl() });
  await client.connect();
  await client.query(`create database ${name}`);
  t.teardown(async () => {
    await client.query(`drop database ${name} with (force)`);
    await client.end();
  });
  return name;
}

/** A signal to npm must reach the server: `exec` in the script, or a shell in between would take it. */
async function end(server: ChildProcess): Promise<number | null> {
  if (server.exitCode === null && server.signalCode === null) {
    server.kill('SIGTERM');
    await once(server, 'exit');
  }
  return server.exitCode;
}
