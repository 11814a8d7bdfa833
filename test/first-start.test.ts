import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { createCallers } from '../src/control/credentials.ts';
import type { Database } from '../src/db/connect.ts';
import { type FirstKeys, prepareFirstStart } from '../src/first-start.ts';
import { testDatabase, until } from './support/harness.ts';
import { EXIT_MS_MAX, type Listening, request, runMain, startMain, testFolder } from './support/process.ts';

const keysIn = (dataDir: string): FirstKeys => JSON.parse(readFileSync(join(dataDir, 'keys.json'), 'utf8'));
const pidIn = (dataDir: string): number => Number(readFileSync(join(dataDir, 'leasehold.pid'), 'utf8'));
const workUrl = ({ url }: Listening, { environmentId }: FirstKeys) => `${url}/v1/environments/${environmentId}/work`;

const enqueue = ({ url }: Listening, { environmentId, apiKey }: FirstKeys, session: string) =>
  request(`${url}/control/v1/environments/${environmentId}/work`, apiKey, { data: { type: 'session', id: session } });

/** Both keys open what they are for, and the item is still there. */
async function expectAllThere(t: Tap, server: Listening, keys: FirstKeys, session: string): Promise<void> {
  const work = workUrl(server, keys);
  t.match(await request(`${server.url}/v1/environments/${keys.environmentId}`, keys.apiKey), { status: 200 });
  const listed = await request(work, keys.environmentKey);
  t.strictSame(
    [listed.status, listed.json.data.map((item: { data: { id: string } }) => item.data.id)],
    [200, [session]],
  );
}

type Tap = Parameters<typeof runMain>[0];

/** What is printed to be pasted: variables, and two commands, each under its comment. */
async function printedBy(server: Listening): Promise<{ variables: string; commands: string[] }> {
  const isWhole = () => /^ .*Anthropic-Worker-ID.*\n/m.test(server.output());
  await until('the block to be printed', isWhole);
  const [, block = ''] = server.output().split(/^(?=export LEASEHOLD_URL=)/m);
  const [variables = '', ...commands] = block.split(/^# .*$/m);
  return { variables, commands: commands.map((command) => command.replace(/^\{.*/ms, '')) };
}

const hasCurl = spawnSync('curl', ['--version']).status === 0;

t.test('the first start on PGlite prints what a newcomer pastes, and keeps the keys to itself', async (t) => {
  const dataDir = join(testFolder(t), 'data');
  const server = await startMain(t, { DATA_DIR: dataDir });
  const { environmentId, environmentKey, apiKey } = keysIn(dataDir);
  const { variables, commands } = await printedBy(server);
  t.strictSame(variables.trim().split('\n'), [
    `export LEASEHOLD_URL=${server.url}`,
    `export LEASEHOLD_API_KEY=${apiKey}`,
    `export ANTHROPIC_ENVIRONMENT_ID=${environmentId}`,
    `export ANTHROPIC_ENVIRONMENT_KEY=${environmentKey}`,
  ]);
  t.equal(statSync(join(dataDir, 'keys.json')).mode & 0o777, 0o600);
  for (const path of ['/healthz', '/readyz']) t.equal((await request(server.url + path, null)).status, 200, path);
  const logged = JSON.stringify(server.log());
  for (const key of [apiKey, environmentKey]) t.notOk(logged.includes(key), 'no key in the log');

  await t.test('the two curl commands work as pasted', { skip: !hasCurl && 'curl is not installed' }, async (t) => {
    const paste = (command: string) => {
      const options = { input: variables + command, env: { PATH: process.env.PATH }, timeout: EXIT_MS_MAX };
      return JSON.parse(spawnSync('sh', options).stdout.toString());
    };
    t.equal(commands.length, 2);
    const [put = '', take = ''] = commands;
    const { id } = paste(put);
    t.match(paste(take), {
      id,
      state: 'queued',
      environment_id: environmentId,
      data: { id: 'session-1' },
      secret: String,
    });
  });

  await t.test('a second process is kept out of the folder and does no harm', async (t) => {
    const second = runMain(t, { DATA_DIR: dataDir });
    t.strictSame(await second.ended(), { code: 1, signal: null });
    t.match(second.output(), `DATA_DIR ${dataDir} is in use by process ${server.child.pid}`);
    t.match(await request(`${server.url}/readyz`, null), { status: 200 });
    t.equal(pidIn(dataDir), server.child.pid, 'the lock is still the first one');
  });
});

t.test('later starts find everything again, after a clean end and after kill -9', async (t) => {
  const dataDir = testFolder(t);
  const first = await startMain(t, { DATA_DIR: dataDir });
  const keys = keysIn(dataDir);
  t.equal((await enqueue(first, keys, 'session-1')).status, 201);
  first.child.kill('SIGTERM');
  t.strictSame(await first.ended(), { code: 0, signal: null });
  t.notOk(existsSync(join(dataDir, 'leasehold.pid')), 'the folder is free again');

  const second = await startMain(t, { DATA_DIR: dataDir });
  await expectAllThere(t, second, keys, 'session-1');
  t.strictSame(keysIn(dataDir), keys);
  t.notMatch(second.output(), /LEASEHOLD_API_KEY|lh[ek]_/, 'nothing is printed again');
  second.child.kill('SIGKILL');
  t.strictSame(await second.ended(), { code: null, signal: 'SIGKILL' });
  t.equal(pidIn(dataDir), second.child.pid, 'its lock file is left behind');

  const third = await startMain(t, { DATA_DIR: dataDir });
  t.equal(pidIn(dataDir), third.child.pid, 'and taken over');
  await expectAllThere(t, third, keys, 'session-1');
  t.equal((await enqueue(third, keys, 'session-1')).status, 200, 'covered by the item of the first start');
  t.strictSame(keysIn(dataDir), keys);
});

t.test('DATA_DIR=memory:// serves with keys of its own and writes nothing', async (t) => {
  const server = await startMain(t, { DATA_DIR: 'memory://' });
  const { variables } = await printedBy(server);
  const value = (name: string) => new RegExp(`^export ${name}=(.+)$`, 'm').exec(variables)?.[1] ?? '';
  const keys: FirstKeys = {
    environmentId: value('ANTHROPIC_ENVIRONMENT_ID'),
    environmentKey: value('ANTHROPIC_ENVIRONMENT_KEY'),
    apiKey: value('LEASEHOLD_API_KEY'),
  };
  t.equal((await enqueue(server, keys, 'session-1')).status, 201);
  await expectAllThere(t, server, keys, 'session-1');
  t.notOk(existsSync('memory:'), 'no folder of that name');
});

t.test('a first start that breaks off anywhere is made good by the next', async (t) => {
  for (let broken = 1, finished = false; !finished; broken++) {
    const database: Database = { ...(await testDatabase(t)), engine: 'pglite' };
    const dataDir = testFolder(t);
    let left = broken;
    const rows: Database['rows'] = (...statement) =>
      left-- === 1 ? Promise.reject(new Error('crash')) : database.rows(...statement);
    finished = await prepareFirstStart({ ...database, rows }, dataDir).then(
      () => true,
      () => false,
    );
    await prepareFirstStart(database, dataDir);
    const { environmentId, environmentKey, apiKey } = keysIn(dataDir);
    const { identify, close } = createCallers({ database });
    t.match(await identify(environmentKey), { kind: 'environment', environmentId }, `broken at statement ${broken}`);
    t.match(await identify(apiKey), { kind: 'api', role: 'operator' });
    await close();
    t.equal(await prepareFirstStart(database, dataDir), undefined, 'there is nothing left to do');
    if (finished) t.ok(broken > 4, 'every statement was broken once');
  }
});
