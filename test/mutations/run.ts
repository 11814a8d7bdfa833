import { spawn } from 'node:child_process';
import { cpSync, existsSync, globSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join, resolve } from 'node:path';
import { startPostgres } from '../support/postgres.ts';
import { buildTap } from '../support/tap.ts';
import { JUSTIFIED } from './justified.ts';
import { type Guard, mutate, scan } from './scanner.ts';

/**
 * `npm run test:mutations [-- src/queue/poll.ts test/races/*.ts …]`: takes each guard out of the statements that write, or that decide
 * what a credential opens, in turn, in a copy of the tree, and wants a test to notice. Exits 1 when one does not. Add a file here when it
 * writes, or reads what is one item's or one environment's.
 */
const VERBS = [
  ...[
    'enqueue-statement',
    'follow-up',
    'poll',
    'ack',
    'heartbeat',
    'stop',
    'cancel-session',
    'requeue',
    'sets',
    'metadata',
    'put-back',
    'holder',
    'release',
    'outcome',
    'retry',
  ],
  ...['sweep', 'prune', 'sightings', 'refusals'],
  ...['assignment', 'input', 'details', 'list-details', 'history'],
];
const CONTROL = [
  ...['change-environment', 'settings', 'credentials', 'keys', 'key-rows', 'retried-writes', 'prune'],
  ...['stream-tickets', 'introspect'],
];
const PROCESS = ['claim', 'free-items', 'lease', 'extend', 'assert', 'settle', 'request-cancel', 'reap', 'come-due'];
const SESSIONS = ['store', 'lock', 'create', 'update', 'end', 'arm', 'rearm', 'prune'];
const LOCKS = ['acquire', 'renew', 'release', 'list', 'prune'];
const FOLDERS = { queue: VERBS, control: CONTROL, process: PROCESS, sessions: SESSIONS, locks: LOCKS };
const FILES = Object.entries(FOLDERS).flatMap(([folder, files]) => files.map((file) => `src/${folder}/${file}.ts`));
const AT_ONCE = 2;
/** Without mutation; a mutant gets a multiple of what its test took then: how slow a machine is, is no verdict. */
const SOUND_MS_MAX = 300_000;
const MUTANT_MS_MIN = 60_000;
const MUTANT_SLOWNESS_MAX = 5;
/** Which test noticed which mutant last time: it is asked first. A hint only; every verdict is found anew. Written by a run. */
const KILLERS = resolve(import.meta.dirname, 'killers.json');
/** What its plans meet is chance, also with the same seed. */
const BY_CHANCE = 'test/model/replicas.test.ts';
/** Always the same histories of the model: a verdict must not depend on luck. Nor on tap's own 30 s for a file, which would make a slow machine's test red. */
const SAMPLE = {
  ...{ MODEL_SEED: '1', MODEL_HISTORIES: '80', TEST_ENGINES: 'postgres' },
  ...{ TAP_BAIL: '1', TAP_TIMEOUT: '0', TEST_PATIENCE_MS: '5000' },
};

type Mutant = Guard & { readonly file: string };
type Outcome =
  | { readonly kind: 'green' }
  | { readonly kind: 'red' | 'timeout'; readonly test: string }
  | { readonly kind: 'invalid'; readonly error: string };

const root = resolve(import.meta.dirname, '../..');
/** Sources and tests to confine the run to; none: all of them. */
const asked = process.argv.slice(2);
const isAsked = (folder: 'src/' | 'test/', file: string): boolean =>
  asked.includes(file) || !asked.some((other) => other.startsWith(folder));
const mutants: Mutant[] = [];
for (const file of FILES) {
  const found = scan(readFileSync(join(root, file), 'utf8')).map((guard) => ({ ...guard, file }));
  console.log(`${file}: ${found.length} guards`);
  if (found.length === 0) throw new Error(`${file}: the scanner found no guard, which cannot be`);
  mutants.push(...found);
}
const justify = (mutant: Mutant) =>
  JUSTIFIED.find(({ file, cte, text }) => file === mutant.file && cte === mutant.cte && text === mutant.text);
const stale = JUSTIFIED.filter((entry) => !mutants.some((mutant) => justify(mutant) === entry));
for (const { file, cte, text } of stale) console.log(`justified, but not there: ${file} ${cte}: ${text}`);
if (stale.length > 0) process.exit(1);

buildTap();
const given = process.env.DATABASE_URL;
const postgres = given ? undefined : await startPostgres(['fsync=off', 'synchronous_commit=off']);
const databaseUrl = given || postgres?.url || '';
const running = new Set<{ kill(): void }>();
const copies = Array.from({ length: AT_ONCE }, copyTree);
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => cleanUp().then(() => process.exit(1)));
try {
  process.exitCode = await main();
} finally {
  await cleanUp();
}

async function cleanUp(): Promise<void> {
  for (const child of running) child.kill();
  for (const copy of copies) rmSync(copy, { recursive: true, force: true });
  await postgres?.stop();
}

async function main(): Promise<number> {
  const tests = globSync('test/**/*.test.ts', { cwd: root })
    .filter((test) => !test.endsWith('scanner.test.ts'))
    .filter((test) => test !== BY_CHANCE)
    .filter((test) => isAsked('test/', test));
  const milliseconds = new Map<string, number>();
  const tally = createTally();

  const broken = new Set<string>();
  await share(tests, async (test, copy) => {
    const began = performance.now();
    const outcome = await runTwice(copy, test, SOUND_MS_MAX);
    milliseconds.set(test, performance.now() - began);
    if (outcome.kind !== 'green') broken.add(test);
  });
  for (const test of broken) console.log(`left out, as it is not green without mutation: ${test}`);
  const sound = tests.filter((test) => !broken.has(test));
  console.log(`${sound.length} of ${tests.length} test files are green without mutation`);
  if (sound.length === 0) return 1;

  const killers: Record<string, string> = JSON.parse(readFileSync(KILLERS, 'utf8'));
  const results: { mutant: Mutant; outcome: Outcome }[] = [];
  const chosen = mutants.filter(({ file }) => isAsked('src/', file));
  await share(
    chosen.filter((mutant) => justify(mutant) === undefined),
    async (mutant, copy) => {
      const soundMs = (test: string) => milliseconds.get(test) ?? 1;
      const worth = (test: string) => tally.chance(mutant.file, test) / soundMs(test);
      const msMax = (test: string) => Math.max(MUTANT_MS_MIN, MUTANT_SLOWNESS_MAX * soundMs(test));
      const last = killers[untied(mutant)];
      const order = sound.toSorted((a, b) => Number(b === last) - Number(a === last) || worth(b) - worth(a));
      const outcome = await tryMutant(copy, mutant, order, msMax, tally.count);
      console.log(`${told(outcome).padEnd(9)} ${name(mutant)}${'test' in outcome ? `  (${outcome.test})` : ''}`);
      results.push({ mutant, outcome });
      if (outcome.kind === 'red') killers[untied(mutant)] = outcome.test;
    },
  );
  const known = new Set(mutants.map(untied));
  const kept = Object.entries(killers).filter(([mutant]) => known.has(mutant));
  writeFileSync(KILLERS, `${JSON.stringify(Object.fromEntries(kept.sort()), null, 2)}\n`);
  return report(chosen, results) + broken.size === 0 ? 0 : 1;
}

/** Prints the reckoning; 0 when nothing survived and every mutant was a statement. */
function report(chosen: readonly Mutant[], results: readonly { mutant: Mutant; outcome: Outcome }[]): number {
  const of = (...kinds: Outcome['kind'][]) => results.filter(({ outcome }) => kinds.includes(outcome.kind));
  for (const mutant of chosen) {
    const entry = justify(mutant);
    if (entry !== undefined) console.log(`justified ${name(mutant)}\n          because it ${entry.reason}`);
  }
  for (const { mutant } of of('timeout')) console.log(`killed only by a timeout: ${name(mutant)}`);
  for (const { mutant, outcome } of of('invalid')) {
    console.log(`not a statement: ${name(mutant)}: ${outcome.kind === 'invalid' ? outcome.error : ''}`);
  }
  for (const { mutant } of of('green')) console.log(`surviving: ${name(mutant)}`);
  const [killed, surviving, invalid] = [of('red', 'timeout').length, of('green').length, of('invalid').length];
  console.log(
    `mutations: ${chosen.length} found, ${killed} killed, ${chosen.length - results.length} justified, ` +
      `${surviving} surviving${invalid === 0 ? '' : `, ${invalid} not a statement`}`,
  );
  return surviving + invalid === 0 ? 0 : 1;
}

/** Stops at the first red. */
async function tryMutant(
  copy: string,
  mutant: Mutant,
  tests: readonly string[],
  msMax: (test: string) => number,
  count: (file: string, test: string, noticed: boolean) => void,
): Promise<Outcome> {
  const path = join(copy, mutant.file);
  const original = readFileSync(path, 'utf8');
  writeFileSync(path, mutate(original, mutant));
  try {
    for (const test of tests) {
      const outcome = await runTwice(copy, test, msMax(test));
      count(mutant.file, test, outcome.kind === 'red');
      if (outcome.kind !== 'green') return outcome;
    }
    return { kind: 'green' };
  } finally {
    writeFileSync(path, original);
  }
}

/** Red is what is red twice: a flake must not pass for a test that guards something. */
async function runTwice(copy: string, test: string, msMax: number): Promise<Outcome> {
  const outcome = await runTest(copy, test, msMax);
  return outcome.kind === 'red' ? runTest(copy, test, msMax) : outcome;
}

/** One test file in a process of its own, without tap's runner: its exit code is the verdict. */
async function runTest(copy: string, test: string, msMax: number): Promise<Outcome> {
  const note = join(copy, 'unplannable.txt');
  rmSync(note, { force: true });
  const { DATABASE_URL: _, ...inherited } = process.env;
  const child = spawn(process.execPath, ['--import', './test/mutations/watch-sql.ts', test], {
    ...{ cwd: copy, stdio: 'ignore', detached: true },
    env: { ...inherited, ...SAMPLE, TEST_DATABASE_URL: databaseUrl, MUTATION_UNPLANNABLE: note },
  });
  // A group of its own: a test may have started a server.
  const group = {
    kill() {
      try {
        if (child.pid !== undefined) process.kill(-child.pid, 'SIGKILL');
      } catch {} // it has ended
    },
  };
  running.add(group);
  let late = false;
  const timer = setTimeout(() => {
    late = true;
    group.kill();
  }, msMax);
  const code = await new Promise<number | null>((done, fail) => child.once('exit', done).once('error', fail));
  clearTimeout(timer);
  running.delete(group);
  if (existsSync(note)) return { kind: 'invalid', error: readFileSync(note, 'utf8').split('\n')[0] ?? '' };
  if (late) return { kind: 'timeout', test };
  return code === 0 ? { kind: 'green' } : { kind: 'red', test };
}

/** Which test is likely to notice a mutant of which file: the next mutant meets the best first, for the time it takes. */
function createTally() {
  const tries = new Map<string, number>();
  const kills = new Map<string, number>();
  const rate = (key: string, prior: number) => ((kills.get(key) ?? 0) + prior) / ((tries.get(key) ?? 0) + 1);
  return {
    chance: (file: string, test: string): number =>
      rate(`${file} ${test}`, test.includes(basename(file, '.ts')) ? 0.8 : rate(test, 0.3)),
    count(file: string, test: string, noticed: boolean): void {
      for (const key of [test, `${file} ${test}`]) {
        tries.set(key, (tries.get(key) ?? 0) + 1);
        if (noticed) kills.set(key, (kills.get(key) ?? 0) + 1);
      }
    },
  };
}

/** Some at once, each with a copy of the tree to itself. */
async function share<Job>(jobs: readonly Job[], work: (job: Job, copy: string) => Promise<void>): Promise<void> {
  const left = [...jobs];
  await Promise.all(
    copies.map(async (copy) => {
      for (let job = left.shift(); job !== undefined; job = left.shift()) await work(job, copy);
    }),
  );
}

function copyTree(): string {
  const copy = mkdtempSync(join(tmpdir(), 'leasehold-mutant-'));
  const skipped = new Set(['node_modules', '.git', '.tap', 'data'].map((name) => join(root, name)));
  cpSync(root, copy, { recursive: true, filter: (path) => !skipped.has(path) });
  symlinkSync(join(root, 'node_modules'), join(copy, 'node_modules'));
  return copy;
}

function told({ kind }: Outcome): string {
  return { green: 'SURVIVES', red: 'killed', timeout: 'timeout', invalid: 'invalid' }[kind];
}

function name({ line, ...mutant }: Mutant): string {
  return untied(mutant).replace(' ', `:${line} `);
}

/** Its name wherever the lines before it move it. */
function untied({ file, cte, kind, text }: Omit<Mutant, 'line'>): string {
  return `${file} ${cte === '' ? '' : `${cte}: `}${kind === 'limit' || kind === 'lock' ? '' : `${kind} `}${text}`;
}
