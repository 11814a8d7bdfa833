import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pg from 'pg';
import t from 'tap';
import { inShell } from './support/command-line.ts';
import { until } from './support/harness.ts';
import { freshDatabase, testFolder } from './support/process.ts';

const root = join(import.meta.dirname, '..');
const readme = readFileSync(join(root, 'README.md'), 'utf8');
const block = (info: string): string => {
  const found = new RegExp(`^\`\`\`${info}\\n([\\s\\S]*?)^\`\`\`$`, 'm').exec(readme)?.[1];
  if (found === undefined) throw new Error(`README.md has no block ${info}`);
  return found;
};

/** What differs each time: ids, instants, durations, a worker's made-up name; and so the width of columns. */
const general = (text: string): string =>
  text
    .replace(/\b(work|env)_[\w-]{8,}/g, '$1_…')
    .replace(/\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ/g, 'instant')
    .replace(/\bin \d+ ms/g, 'in … ms')
    .replace(/\b[\da-f]{8}(-[\da-f]{4}){3}-[\da-f]{12}\b/g, 'uuid')
    .replace(/\breq_[\w-]+/g, 'req_…')
    .replace(/ {2,}/g, '  ');

t.test('the session of the chapter goes as it stands there, from an empty database on', async (t) => {
  const databaseUrl = await freshDatabase(t);
  const command = block('sh serve')
    .replace(/DATABASE_URL=\S+/, `DATABASE_URL='${databaseUrl}' PORT=0 RECLAIM_OLDER_THAN_MS=600000`)
    .replace('leasehold', `exec '${process.execPath}' src/cli/leasehold.ts`);
  const server = spawn('sh', ['-c', command], {
    cwd: root,
    env: { PATH: process.env.PATH },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const ended = once(server, 'exit');
  t.teardown(async () => {
    server.kill('SIGTERM');
    await ended;
  });
  let log = '';
  server.stdout.on('data', (chunk) => {
    log += chunk;
  });
  const address = () => /listening on (http:[^"]+)/.exec(log)?.[1];
  await until('the server to listen', () => address() !== undefined || server.exitCode !== null);

  const folder = testFolder(t);
  symlinkSync(join(root, 'node_modules'), join(folder, 'node_modules')); // what `npm install` would bring
  writeFileSync(join(folder, 'worker.mjs'), block('js worker'));
  const session = block('console session').replaceAll('http://127.0.0.1:8080', `${address()}`);
  const commands = [...session.matchAll(/^\$ (.*)$/gm)].map(([, line]) => line ?? '');
  t.ok(commands.length > 10);
  // Each is written before what it prints, as in a terminal.
  const typed = commands.map((line) => `echo '$ ${line.replaceAll("'", `'"'"'`)}'\n${line}`).join('\n');
  // What its reader waits for comes once it is watched, however long it takes for that on a busy machine.
  const client = new pg.Client({ connectionString: databaseUrl });
  await client.connect();
  t.teardown(() => client.end());
  let lapsing: Promise<unknown> | undefined;
  const said = await inShell(`cd '${folder}'\nexec 2>&1\n${typed}`, { HOME: tmpdir() }, (out) => {
    if (!/is queued, with doomed/.test(out)) return;
    lapsing ??= client.query(`update leasehold.work_items
      set lease_expires_at = clock_timestamp() - interval '5 seconds' where state = 'queued' and worker_id = 'doomed'`);
  });
  await lapsing;
  t.equal(general(said.out), general(session));
});
