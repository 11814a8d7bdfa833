import { globSync, readFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import t from 'tap';

const ROOT = join(import.meta.dirname, '..');
const IMPORT =
  /^(?:import|export)\s(type\s)?[^;'"]*?from\s+['"]([^'"]+)['"]|^import\s+['"]([^'"]+)['"]|\bimport\(\s*['"]([^'"]+)['"]/gm;

type Import = { target: string; typeOnly: boolean };

/** What a file imports: packages by their names, our own files by their paths from the root. */
function importsOf(file: string): Import[] {
  const text = readFileSync(join(ROOT, file), 'utf8');
  return [...text.matchAll(IMPORT)].map(([, type, from, bare, dynamic]) => {
    const target = from ?? bare ?? dynamic ?? '';
    return {
      target: target.startsWith('.') ? relative(ROOT, join(ROOT, dirname(file), target)) : target,
      typeOnly: type !== undefined,
    };
  });
}

const files = globSync('src/**/*.ts', { cwd: ROOT }).sort();
const imports = new Map(files.map((file) => [file, importsOf(file)]));

/** Design §2. `in`: whose imports; `never`: what they must not reach for; `typesOnly`: what they may name, but not run. */
const RULES: { in: RegExp; never?: RegExp; typesOnly?: RegExp }[] = [
  {
    in: /^src\/queue\//,
    never: /^(fastify|@fastify\/|typebox|@opentelemetry\/|src\/(http|wire|control|dispatch|process|sessions)\/)/,
  },
  // A refusal is a value of everybody's.
  {
    in: /^src\/dispatch\//,
    never: /^(?!src\/(dispatch|queue)\/|node:)/,
    typesOnly: /^src\/queue\/(?!errors\.ts|sets\.ts)/,
  },
  { in: /^src\/db\//, never: /^src\/(?!db\/)/ },
  { in: /^src\/wire\//, never: /^(fastify|@fastify\/|src\/(http|dispatch|db)\/)/, typesOnly: /^src\/control\// },
  { in: /^src\/control\//, never: /^(fastify|@fastify\/|typebox|src\/(http\/|wire\/|dispatch\/(?!notes\.ts)))/ },
  {
    in: /^src\/client\//,
    never: /^(?!src\/(client|wire|flight)\/|typebox$|eventsource-parser$)/,
    typesOnly: /^(src\/wire\/|typebox$)/,
  },
  { in: /^src\/flight\//, never: /^(?!src\/flight\/)/ },
  {
    in: /^src\/locks\//,
    never: /^(fastify|@fastify\/|typebox|@opentelemetry\/|src\/(http|wire|control|dispatch|process|sessions|cli)\/)/,
  },
  { in: /^src\/telemetry\/(?!export\.ts)/, never: /^@opentelemetry\/(?!api$)/ },
  { in: /^src\/(?!main\.ts|cli\/leasehold\.ts)/, never: /^(src\/main\.ts|(node:)?process)$/ },
  {
    in: /^src\/process\//,
    never: /^(fastify|@fastify\/|typebox|@opentelemetry\/|src\/(http|wire|control|dispatch|cli)\/)/,
  },
  {
    in: /^src\/sessions\//,
    never:
      /^(fastify|@fastify\/|typebox|@opentelemetry\/|src\/(http|wire|control|dispatch\/(?!(sink|slots)\.ts)|process|cli)\/)/,
  },
  { in: /^src\/cli\/(?!leasehold\.ts)/, never: /^(fastify|@fastify\/|typebox|src\/(http|wire)\/)/ },
];

t.test('imports point down', async (t) => {
  t.ok(
    imports.get('src/queue/poll.ts')?.some(({ target }) => target === 'src/db/connect.ts'),
    'imports are found',
  );
  for (const rule of RULES) {
    const ruled = files.filter((file) => rule.in.test(file));
    t.not(ruled.length, 0, `${rule.in} is about something`);
    const broken = ruled.flatMap((file) =>
      (imports.get(file) ?? [])
        .filter(({ target, typeOnly }) => rule.never?.test(target) || (!typeOnly && rule.typesOnly?.test(target)))
        .map(({ target }) => `${file} imports ${target}`),
    );
    t.same(broken, [], `${rule.in}`);
  }
});

t.test('the library reaches no HTTP', async (t) => {
  const reached = new Set(['src/index.ts']);
  // Types are gone by then: the client names those of src/wire/.
  for (const file of reached) for (const i of imports.get(file) ?? []) if (!i.typeOnly) reached.add(i.target);
  t.ok(reached.has('kysely'), 'imports are followed');
  const http = [...reached].filter((target) => /^(fastify|@fastify\/|src\/(http|wire)\/|node:https?$)/.test(target));
  t.same(http, []);
});

t.test('only the process entries read the environment and exit', async (t) => {
  const users = files.filter((file) => /process\.(env|exit)/.test(readFileSync(join(ROOT, file), 'utf8')));
  t.same(users, ['src/cli/leasehold.ts', 'src/main.ts']);
});

t.test('every path that ARCHITECTURE.md names exists', async (t) => {
  const text = readFileSync(join(ROOT, 'ARCHITECTURE.md'), 'utf8');
  // Folders, files of ours below any folder, and files at the root: not routes, media types or file names in general.
  const isPath =
    /^(?:[\w.*-]+\/)+$|^(?:[\w.*-]+\/)+[\w.*-]+\.\w+$|^(?:src|test|migrations|openapi|bench|\.ci)\/|^[\w-]+\.(?:ts|md|yml)$/;
  const named = [...text.matchAll(/`([^`\s]+)`/g)].map(([, name]) => name ?? '').filter((name) => isPath.test(name));
  t.not(named.length, 0, 'it names paths');
  const missing = named.filter((name) => globSync([name, join('src', name)], { cwd: ROOT }).length === 0);
  t.same(missing, []);
});
