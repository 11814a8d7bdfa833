import { execFile } from 'node:child_process';
import { cpSync, existsSync, globSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { delimiter, dirname, join } from 'node:path';
import { promisify } from 'node:util';
import t, { type Test } from 'tap';
import { PATIENCE_MS, until } from './support/harness.ts';
import { freshDatabase, listening, request, runCommand, testFolder } from './support/process.ts';

const ROOT = join(import.meta.dirname, '..');
const HANDLERS = 'export const handlers = { async model_turn(item: { seq: string }) {} };\n';
/** Without what tap loads into every Node that is started: it is a development dependency. */
const PLAIN = ['-u', 'NODE_OPTIONS'];
const execute = (command: string, args: readonly string[], options: { cwd: string; env?: NodeJS.ProcessEnv }) =>
  promisify(execFile)('env', [...PLAIN, command, ...args], { timeout: PATIENCE_MS, ...options });
const json = (file: string) => JSON.parse(readFileSync(file, 'utf8'));

/**
 * The package, packed and installed in a folder outside the repository without the network: what `npm ci --omit=dev` would bring is
 * copied there first, so that npm has nothing to fetch, and whatever else the package wanted would be missing.
 */
async function installed(t: Test) {
  const folder = testFolder(t);
  const user = join(folder, 'user');
  const modules = join(user, 'node_modules');
  const commands = (process.env.PATH ?? '').split(delimiter);
  const env = {
    // The Node that runs this, since the machine's own may be old, and no command of the repository's.
    PATH: [dirname(process.execPath), ...commands.filter((path) => !path.startsWith(ROOT))].join(delimiter),
    HOME: folder,
    npm_config_cache: join(folder, 'cache'),
    npm_config_offline: 'true',
    npm_config_audit: 'false',
    npm_config_update_notifier: 'false',
  };
  const npm = async (cwd: string, ...args: string[]) => (await execute('npm', args, { cwd, env })).stdout;
  const [packed] = JSON.parse(await npm(ROOT, 'pack', '--json', '--pack-destination', folder));

  mkdirSync(modules, { recursive: true });
  for (const [path, { dev }] of Object.entries<{ dev?: boolean }>(json(join(ROOT, 'package-lock.json')).packages)) {
    const name = path.replace(/^node_modules\//, ''); // what lies in a package's own node_modules comes along with it
    if (path === '' || dev || name.includes('node_modules/') || !existsSync(join(ROOT, path))) continue;
    cpSync(join(ROOT, path), join(modules, name), { recursive: true });
  }
  writeFileSync(join(user, 'package.json'), '{"private":true,"type":"module"}');
  await npm(user, 'rebuild', '--ignore-scripts'); // notes what was copied, and links its commands
  await npm(user, 'install', join(folder, packed.filename));
  return {
    user,
    modules,
    env,
    tarball: packed.filename,
    files: packed.files.map(({ path }: { path: string }) => path) as string[],
  };
}

t.test('the package works where there is nothing else', async (t) => {
  const { user, modules, env, tarball, files } = await installed(t);
  const home = join(modules, 'leasehold');
  const leasehold = join(modules, '.bin', 'leasehold');
  const database = await freshDatabase(t);
  cpSync(join(ROOT, 'test/support/package-user.ts'), join(user, 'user.ts'));

  await t.test('its types say of the verbs what they refuse', async (t) => {
    const types = ['create-queue', 'single-calls', 'set-calls', 'reads']
      .map((name) => readFileSync(join(home, 'dist', 'src', `${name}.d.ts`), 'utf8'))
      .join('');
    for (const verb of ['enqueue', 'poll', 'ack', 'heartbeat', 'stop', 'release', 'reportOutcome', 'list', 'stats']) {
      t.match(types, new RegExp(`\\*/\n    ${verb}[(:]`), verb);
      t.notMatch(types, new RegExp(`[;{]\n    ${verb}[(:]`), `${verb}, nowhere without`);
    }
  });

  await t.test('it holds what it is for, and what it imports is what it depends on', async (t) => {
    const outside = files.filter((file) => !/^dist\/(src|migrations)\/.*\.(js|d\.ts)$/.test(file)).sort();
    const texts = ['CHANGELOG.md', 'LICENSE', 'README.md'];
    const linked = ['docs/add-a-backend.md', 'examples/agent-loop.ts', 'examples/backend.mjs', 'openapi/work-api.json'];
    t.strictSame(outside, [...texts, 'bin/leasehold.js', ...linked, 'package.json']);
    const readme = readFileSync(join(home, 'README.md'), 'utf8');
    t.strictSame([...new Set(readme.match(/leasehold-[\d.]+\.tgz/g))], [tarball], 'the README names it');
    const imports = /^(?:import|export) .* from '(.+)'|^import '(.+)'|import\('(.+)'\)/gm;
    const imported = globSync('dist/**/*.js', { cwd: home })
      .flatMap((file) => [...readFileSync(join(home, file), 'utf8').matchAll(imports)])
      .map(([, from, bare, dynamic]) => from ?? bare ?? dynamic ?? '')
      .filter((target) => !/^(\.|node:)/.test(target))
      .map((target) => /^(@[^/]+\/)?[^/]+/.exec(target)?.[0] ?? '');
    const peers = imported.flatMap((name) =>
      Object.keys(json(join(modules, name, 'package.json')).peerDependencies ?? {}).filter(
        (peer) => peer === 'commander',
      ),
    );
    const needed = [...new Set([...imported, ...peers])].sort();
    t.strictSame(needed, Object.keys(json(join(home, 'package.json')).dependencies).sort());
  });

  await t.test('its types are whole: no types of others are to be installed, and none are skipped', async (t) => {
    for (const [module, resolution] of [
      ['nodenext', 'nodenext'],
      ['esnext', 'bundler'],
    ] as const) {
      const options = `--strict --noEmit --skipLibCheck false --target es2024 --module ${module} --moduleResolution ${resolution}`;
      const tsc = join(ROOT, 'node_modules/typescript/bin/tsc');
      writeFileSync(join(user, 'globals.d.ts'), 'declare const process: { argv: string[] };\n');
      const checked = execute(process.execPath, [tsc, ...options.split(' '), 'user.ts', 'globals.d.ts'], { cwd: user });
      const problems = await checked.then(({ stdout }) => stdout).catch((error) => error.stdout || error);
      t.equal(problems, '', resolution);
    }
  });

  await t.test('the server answers, both doors open, and SIGTERM ends it', async (t) => {
    const apiKey = 'a-key-of-this-test';
    const server = await listening(
      runCommand(t, 'env', [...PLAIN, leasehold, 'serve'], {
        ...env,
        DATABASE_URL: database,
        LEASEHOLD_API_KEY: apiKey,
      }),
    );
    const { id } = (await request(`${server.url}/v1/environments`, apiKey, { name: 'served' })).json;
    const used = await execute(process.execPath, ['user.ts', server.url, apiKey, id], { cwd: user, env });
    t.equal(used.stdout, 'session-1\nsession-2 queued\ntrue\ntrue\n');
    const polled = await request(`${server.url}/v1/environments/${id}/work/poll`, apiKey);
    t.match(polled, { status: 200, json: { data: { id: 'session-2' } } });
    server.child.kill('SIGTERM');
    t.strictSame(await server.ended(), { code: 0, signal: null });
  });

  await t.test('the runner runs a module of handlers', async (t) => {
    const handlers = join(user, 'handlers.ts');
    writeFileSync(handlers, HANDLERS);
    const variables = { ...env, DATABASE_URL: database };
    const runner = runCommand(t, 'env', [...PLAIN, leasehold, 'runner', '--handlers', handlers], variables);
    const claims = () => runner.log().some(({ msg }) => msg === 'claiming work');
    await until('it to claim', () => claims() || runner.child.exitCode !== null);
    runner.child.kill('SIGTERM');
    t.strictSame(await runner.ended(), { code: 0, signal: null }, runner.output());
  });

  await t.test("the client's door needs nothing of the server", async (t) => {
    const alone = testFolder(t);
    for (const name of ['leasehold', 'eventsource-parser']) {
      cpSync(join(modules, name), join(alone, 'node_modules', name), { recursive: true });
    }
    const code = "import { RemoteTools } from 'leasehold/client'; console.log(typeof RemoteTools)";
    const { stdout } = await execute(process.execPath, ['--input-type=module', '-e', code], { cwd: alone, env });
    t.equal(stdout, 'function\n');
  });

  await t.test('the image is given all that its command needs', async (t) => {
    const dockerfile = readFileSync(join(ROOT, 'Dockerfile'), 'utf8');
    const copied = [...dockerfile.matchAll(/^COPY (?!--from)(.+) \S+$/gm)].flatMap(
      ([, names]) => names?.split(' ') ?? [],
    );
    const passed = readFileSync(join(ROOT, '.dockerignore'), 'utf8').match(/(?<=^!).+$/gm);
    t.strictSame([...new Set(copied)].sort(), passed?.sort());
    const app = testFolder(t);
    for (const name of copied) cpSync(join(ROOT, name), join(app, name), { recursive: true });
    symlinkSync(modules, join(app, 'node_modules'));
    const [command, ...args] = JSON.parse(/^ENTRYPOINT (.+)$/m.exec(dockerfile)?.[1] ?? '[]');
    const { stdout } = await execute(command, [...args, '--help'], { cwd: app, env });
    t.match(stdout, /^Usage:/);
  });
});
