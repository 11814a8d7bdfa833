import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
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

/** `leasehold` is this checkout here; `test/package.test.ts` has the package. */
const asModule = (code: string) => ['--conditions=leasehold-source', '--input-type=module', '-e', code];
const inNode = (code: string, env: NodeJS.ProcessEnv) =>
  run(process.execPath, asModule(code), { cwd: root, env, timeout: 30_000 });

t.test('the start command, its pasted block and the SDK example work as the README says', async (t) => {
  const { server, exports, env, pasted } = await startedServer(t);
  const [enqueue] = pasted.slice(pasted.indexOf('curl')).split('\n\n');
  const enqueued = await run('sh', ['-c', [...exports, enqueue].join('\n')]);
  t.match(JSON.parse(enqueued.stdout), { state: 'queued', data: { id: 'session-1' } });
  const worked = await inNode(block('js worker'), env);
  t.match(worked.stdout, 'working on session-1\n');
  const controlled = await inNode(block('js client'), env);
  t.match(
    controlled.stdout,
    /^work_\S+ is queued\nno_worker_polls: |^work_\S+ is queued\n$/,
    'the client of our own routes',
  );
  const flown = await inNode(block('js flight'), env);
  t.match(flown.stdout, /^a summary, made under token \d+\n$/, 'single flight');
  t.equal((await inNode(block('js events'), env)).stdout, 'attached\nwork_available\n', 'the events');
  t.equal(await end(server), 0, 'SIGTERM ends it cleanly');
});

t.test("the chapter of the customer's machine: its worker runs what its agent and its commands ask for", async (t) => {
  const { exports, env } = await startedServer(t);
  const machine = mkdtempSync(join(tmpdir(), 'leasehold-machine-'));
  t.teardown(() => rmSync(machine, { recursive: true, force: true }));
  symlinkSync(join(root, 'node_modules'), join(machine, 'node_modules')); // what `npm install` would bring
  writeFileSync(join(machine, 'worker.mjs'), block('js machine'));
  const { LEASEHOLD_API_KEY: _, ...known } = env;
  const worker = spawn(process.execPath, ['worker.mjs'], {
    cwd: machine,
    env: { PATH: process.env.PATH, ...known },
    stdio: ['ignore', 'inherit', 'inherit'],
  });
  t.teardown(() => end(worker));

  const agent = await inNode(block('js agent'), env);
  t.match(agent.stdout, /^it says: hello from the agent\s*\w+\s*$/);
  t.equal(readFileSync(join(machine, 'hello.txt'), 'utf8'), 'hello from the agent\n');

  const [create = '', append = '', read = ''] = block('sh relay').split('\n\n');
  const [ask = '', keep = ''] = create.split('\nexport ');
  const inShell = async (...lines: string[]) =>
    JSON.parse((await run('sh', ['-c', [...exports, ...lines].join('\n')])).stdout);
  const session = await inShell(ask);
  t.match(session, { type: 'session', id: /^sesn_/ });
  const kept = `export ${keep.replace('sesn_...', session.id)}`;
  const { data: calls } = await inShell(kept, append);
  t.match(calls, [{ type: 'agent.tool_use', name: 'bash' }]);
  t.strictSame((await inShell(kept, append)).data, calls, 'once, under its key');
  let results: unknown[] = [];
  await until(
    'the result',
    async () => {
      results = (await inShell(kept, read)).data;
      return results.length > 0;
    },
    30_000,
  );
  t.match(results, [{ type: 'user.tool_result', tool_use_id: calls[0].id, content: [{ type: 'text' }] }]);
  t.equal(results.length, 1);
  t.equal(worker.exitCode, null, 'the worker goes on polling');
});

t.test('the commands for Postgres make an environment, a key and work', async (t) => {
  const url = new URL(databaseUrl());
  url.pathname = `/${await freshDatabase(t)}`;
  const apiKey = /LEASEHOLD_API_KEY=(\S+)/.exec(block('sh postgres'))?.[1];
  const command = block('sh postgres').replace(/DATABASE_URL=\S+/, `DATABASE_URL='${url.href}' PORT=0`);
  const server = spawn('sh', ['-c', command.replace('npm start', 'exec npm start')], {
    cwd: root,
    env: { PATH: process.env.PATH, HOME: tmpdir() },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  t.teardown(() => end(server));
  let log = '';
  server.stdout.on('data', (chunk) => {
    log += chunk;
  });
  const address = () => /listening on (http:[^"]+)/.exec(log)?.[1];
  await until('the server to listen', () => address() !== undefined, 60_000);

  const [exported = '', make = '', ...rest] = block('sh operator')
    .replace('http://127.0.0.1:8080', `${address()}`)
    .split('\n\n');
  t.match(exported, `LEASEHOLD_API_KEY=${apiKey}`);
  const [create = '', keep = ''] = make.split('\nexport ');
  const environment = JSON.parse((await run('sh', ['-c', `${exported}\n${create}`])).stdout);
  t.match(environment, { type: 'environment', name: 'production', config: { type: 'self_hosted' } });
  const kept = `export ${keep.replace('env_...', environment.id)}`;
  const { stdout } = await run('sh', ['-c', [exported, kept, ...rest].join('\n')]);
  const [key, work] = stdout
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line));
  t.match(key, { name: 'workers', key: /^lhe_/ });
  t.match(work, { type: 'work', state: 'queued', data: { id: 'session-2' } });
  t.equal(await end(server), 0);
});

t.test('the library example runs against a real Postgres', async (t) => {
  const name = await freshDatabase(t);
  const url = new URL(databaseUrl());
  url.pathname = `/${name}`;
  const code = block('js library');
  const client = new pg.Client({ connectionString: url.href });
  await client.connect();
  t.teardown(() => client.end());
  await client.query(/ \/\/ (create table .*)$/m.exec(code)?.[1] ?? '');
  const { stdout } = await inNode(code, { DATABASE_URL: url.href });
  t.equal(stdout, 'handed out session-1\n');
  t.same((await client.query('select * from orders')).rows, [{ id: '1' }]);
});

t.test('the example of a keeper completes what it claimed', async (t) => {
  const setUp = `import { createEnvironment, createQueue, keepLease, migrate, openDatabase } from 'leasehold';
    const database = await openDatabase({});
    await migrate(database);
    const queue = createQueue({ database });
    const { id: environmentId } = await createEnvironment(database, { name: 'cloud', type: 'cloud' });
    await queue.enqueue({ environmentId, sessionId: 'session', kind: 'outputs_harvest', input: 'all' });
    const harvest = async (input, signal) => console.log(input, signal.aborted);`;
  const tearDown = `console.log((await database.rows(sql\`select stop_reason from leasehold.work_items\`))[0].stop_reason);
    await queue.close();
    await database.close();`;
  const { stdout } = await inNode(`import { sql } from 'kysely';\n${setUp}\n${block('js keeper')}\n${tearDown}`, {});
  t.equal(stdout, 'all false\nworker\n');
});

t.test('the example of executors answers, and ends cleanly by SIGTERM', async (t) => {
  const url = new URL(databaseUrl());
  url.pathname = `/${await freshDatabase(t)}`;
  const code = block('js executors');
  const database = new pg.Client({ connectionString: url.href });
  await database.connect();
  t.teardown(() => database.end());
  await database.query(/^\/\/ Your table: (create table .*)$/m.exec(code)?.[1] ?? '');
  const runner = spawn(process.execPath, asModule(code), {
    cwd: root,
    env: { PATH: process.env.PATH, DATABASE_URL: url.href },
    stdio: ['ignore', 'inherit', 'inherit'],
  });
  t.teardown(() => end(runner));
  const ended = `select count(*)::integer as n from leasehold.work_items where stop_reason = 'worker'`;
  const isMigrated = `select to_regclass('leasehold.work_items') is not null as yes`;
  await until(
    'both items to be done',
    async () => {
      if (runner.exitCode !== null) throw new Error('it ended early');
      return (await database.query(isMigrated)).rows[0].yes && (await database.query(ended)).rows[0].n === 2;
    },
    30_000,
  );
  t.same((await database.query('select * from answers')).rows, [{ session_id: 'session-1', answer: '42' }]);
  t.equal(await end(runner), 0);
});

t.test('CI runs the test command of the README', async (t) => {
  const [, command] = block('sh', 'npm test').split(' && ');
  t.ok(
    readFileSync(join(root, '.ci/run'), 'utf8')
      .split('\n')
      .includes(command ?? 'none'),
  );
});

/** What `npm start` printed on a fresh machine, as pasted and as an environment. */
async function startedServer(t: Test) {
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
  const env = Object.fromEntries(exports.map((line) => line.slice('export '.length).split('=', 2) as [string, string]));
  return { server, pasted, exports, env };
}

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
