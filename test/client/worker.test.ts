import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import Anthropic from '@anthropic-ai/sdk';
import t, { type Test } from 'tap';
import { OPERATOR_KEY, until } from '../support/harness.ts';
import { type Remote, remoteServer } from '../support/remote.ts';

const EXAMPLE = new URL('../../examples/agent-loop.ts', import.meta.url).pathname;

/** An official worker of the server's environment, in a folder of its own. */
function officialWorker(t: Test, { url, environment, environmentKey }: Remote): string {
  const workdir = mkdtempSync(join(tmpdir(), 'leasehold-hands-'));
  const leaving = new AbortController();
  const client = new Anthropic({ baseURL: url, apiKey: null, logLevel: 'off' });
  const worker = client.beta.environments.work.worker({ environmentId: environment.id, environmentKey, workdir });
  const left = worker.run(leaving.signal).catch(() => {}); // aborted
  t.teardown(async () => {
    leaving.abort();
    await left;
    rmSync(workdir, { recursive: true, force: true });
  });
  return workdir;
}

const exampleEnv = ({ url, environment }: Remote) => ({
  LEASEHOLD_URL: url,
  LEASEHOLD_API_KEY: OPERATOR_KEY,
  ANTHROPIC_ENVIRONMENT_ID: environment.id,
});

t.test(
  'an official worker is the hands: its shell keeps its state, its files are there, its failures are told',
  async (t) => {
    const server = await remoteServer(t);
    const workdir = officialWorker(t, server);
    const hands = await server.tools.session(server.environment.id);
    const bash = (command: string) => hands.call('bash', { command }, { timeoutMs: 30_000 });
    t.match(await bash('X=42; echo first'), { text: /^first/, isError: false });
    t.match(await bash('echo $X'), { text: /^42/ });
    t.match(await hands.call('write', { file_path: 'note.txt', content: 'a note' }), { isError: false });
    t.equal(readFileSync(join(workdir, 'note.txt'), 'utf8'), 'a note');
    const edit = { file_path: 'note.txt', old_string: 'a note', new_string: 'two notes' };
    t.match(await hands.call('edit', edit), { isError: false });
    const [read, missing] = await Promise.all([
      hands.call('read', { file_path: 'note.txt' }),
      hands.call('read', { file_path: 'missing.txt' }),
    ]);
    t.match(read, { text: /two notes/, isError: false });
    t.match(missing, { isError: true });
    await hands.close();
    await until('the worker has left', async () => {
      const [item] = (await server.call('GET', server.work())).json.data;
      return item?.state === 'stopped';
    });
  },
);

t.test('the example runs to its end', async (t) => {
  const server = await remoteServer(t);
  const workdir = officialWorker(t, server);
  const { stdout } = await promisify(execFile)(process.execPath, [EXAMPLE], {
    env: exampleEnv(server),
    timeout: 30_000,
  });
  t.match(stdout, /> bash .*\n(.*\n)*The poem has 9 words\.\n$/);
  t.match(readFileSync(join(workdir, 'poem.txt'), 'utf8'), /The lease lapses/);
  t.match((await server.call('GET', '/v1/sessions?include_archived=true')).json.data, [{ status: 'terminated' }]);
});

t.test('the example is cancelled by Ctrl-C: it ends its session and leaves', async (t) => {
  const server = await remoteServer(t); // nobody polls: its first call waits
  const example = spawn(process.execPath, [EXAMPLE], { env: exampleEnv(server), stdio: ['ignore', 'pipe', 'inherit'] });
  t.teardown(() => example.kill('SIGKILL'));
  const exited = once(example, 'exit');
  const sessions = async () => (await server.call('GET', '/v1/sessions?include_archived=true')).json.data;
  await until('its session', async () => (await sessions()).length === 1);
  const [hands] = await sessions();
  await server.untilCalled(hands);
  example.kill('SIGINT');
  t.same(await exited, [130, null]);
  t.match(await sessions(), [{ id: hands.id, status: 'terminated' }]);
});
