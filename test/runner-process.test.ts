import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { sql } from 'kysely';
import t, { type Test } from 'tap';
import { createEnvironment, createQueue, openDatabase, type WorkKind } from '../src/index.ts';
import { rowOf, until } from './support/harness.ts';
import { freshDatabase, type Process, runLeasehold, runMain, testFolder } from './support/process.ts';
import { SETTLING, settlingPlace } from './support/settling.ts';

/** An empty database, opened here, too, with a queue and a cloud environment. */
async function place(t: Test) {
  const { url, database, queue, environmentId } = await settlingPlace(t);
  const enqueue = async (sessionId: string, kind: WorkKind = 'model_turn') =>
    (await queue.enqueue({ environmentId, sessionId, kind })).item.id;
  return { url, database, enqueue, row: (id: string) => rowOf(database, id) };
}

const has = (runner: Process, text: string) => runner.log().some(({ msg }) => String(msg).includes(text));

async function untilClaiming(runner: Process): Promise<void> {
  await until('it to claim', () => has(runner, 'claiming work') || runner.child.exitCode !== null);
  if (runner.child.exitCode !== null) throw new Error(runner.output());
}

/** A module of the test's own; it needs no imports. */
function moduleOf(t: Test, text: string): string {
  const file = join(testFolder(t), 'handlers.ts');
  writeFileSync(file, text);
  return file;
}

t.test('it makes the schema, does what is enqueued elsewhere, and ends cleanly by SIGTERM', async (t) => {
  const url = await freshDatabase(t);
  const args = ['runner', '--handlers', SETTLING, '--worker-id', 'runner-7', '--concurrency', '2'];
  const runner = runLeasehold(t, args, { DATABASE_URL: url });
  await untilClaiming(runner);
  t.match(
    runner.log().find(({ msg }) => msg === 'claiming work'),
    { handlers: ['model_turn', 'web_exec'] },
  );
  const database = await openDatabase({ connectionString: url, poolConnectionsMax: 2 });
  const queue = createQueue({ database });
  t.teardown(async () => {
    await queue.close();
    await database.close();
  });
  await database.rows(sql`create table public.settled (session_id text not null, worker_id text not null)`);
  const { id: environmentId } = await createEnvironment(database, { name: 'cloud', type: 'cloud' });
  for (const [sessionId, kind] of [
    ['1', 'model_turn'],
    ['2', 'web_exec'],
  ] as const) {
    const { item } = await queue.enqueue({ environmentId, sessionId, kind });
    await until('it to be done', async () => (await rowOf(database, item.id)).state === 'stopped');
  }
  t.strictSame(await database.rows(sql`select session_id, worker_id from public.settled order by 1`), [
    { session_id: '1', worker_id: 'runner-7' },
    { session_id: '2', worker_id: 'runner-7' },
  ]);
  runner.child.kill('SIGTERM');
  t.strictSame(await runner.ended(), { code: 0, signal: null });
  t.ok(has(runner, 'stopped'));
  const password = new URL(url).password || 'no password here';
  t.notOk(runner.output().includes(password));
});

t.test('work that ends within the grace is settled; a default export will do', async (t) => {
  const { url, enqueue, row } = await place(t);
  const id = await enqueue('session');
  const file = moduleOf(
    t,
    `export default {
      model_turn(item: { id: string }, { logger }: { logger: { info(details: object, message: string): void } }) {
        return new Promise<void>((resolve) => {
          process.once('SIGTERM', () => setTimeout(resolve, 100));
          logger.info({ work: item.id }, 'begun');
        });
      },
    };`,
  );
  const args = ['runner', '--handlers', file, '--ttl-seconds', '7', '--stall-seconds', '0'];
  const runner = runLeasehold(t, args, { DATABASE_URL: url });
  await until('the work to begin', () => has(runner, 'begun'));
  t.match(await row(id), { state: 'active', lease_ttl_seconds: 7 });
  runner.child.kill('SIGTERM');
  t.strictSame(await runner.ended(), { code: 0, signal: null });
  t.match(await row(id), { state: 'stopped', stop_reason: 'worker' });
});

const ENDLESS = `export const handlers = {
  model_turn: (item, { logger }) => { logger.info({}, 'begun'); return new Promise(() => {}); },
};`;

t.test('work that outlives the grace is released, and the runner ends cleanly', async (t) => {
  const { url, enqueue, row } = await place(t);
  const id = await enqueue('session');
  const args = ['runner', '--handlers', moduleOf(t, ENDLESS), '--grace-seconds', '0'];
  const runner = runLeasehold(t, args, { DATABASE_URL: url });
  await until('the work to begin', () => has(runner, 'begun'));
  runner.child.kill('SIGINT');
  t.strictSame(await runner.ended(), { code: 0, signal: null });
  t.match(await row(id), { state: 'queued', attempt: 1, lease_expires_at: null });
});

t.test('a second signal ends it at once; its lease is left to lapse', async (t) => {
  const { url, enqueue, row } = await place(t);
  const id = await enqueue('session');
  // The grace is long, and told by the variable that the server's is told by.
  const variables = { DATABASE_URL: url, SHUTDOWN_GRACE_SECONDS: '600' };
  const runner = runLeasehold(t, ['runner', '--handlers', moduleOf(t, ENDLESS)], variables);
  await until('the work to begin', () => has(runner, 'begun'));
  runner.child.kill('SIGTERM');
  await until('the shutdown', () => has(runner, 'shutting down'));
  runner.child.kill('SIGINT');
  t.strictSame(await runner.ended(), { code: 130, signal: null });
  t.match(await row(id), { state: 'active' });
});

t.test('wrong arguments are named, with exit 2, before the database is asked', async (t) => {
  const cells: [args: string[], said: RegExp[]][] = [
    [
      ['--concurrency', '0'],
      [/^leasehold: --handlers must /m, /^leasehold: --concurrency must /m, /--help tells/],
    ],
    [['--handlers', '/nowhere/handlers.ts'], [/\/nowhere\/handlers\.ts: there is no such file/]],
    [['--handlers', moduleOf(t, 'export const one = 1;')], [/exports neither handlers nor a default/]],
    [
      ['--handlers', moduleOf(t, 'export default { model_turn() {} }; export const onReclaimed = 1;')],
      [/onReclaimed must be a function/],
    ],
  ];
  for (const [args, said] of cells) {
    const wrong = runLeasehold(t, ['runner', ...args], { DATABASE_URL: 'postgres://127.0.0.1:1/nowhere' });
    t.strictSame(await wrong.ended(), { code: 2, signal: null }, args.join(' '));
    for (const line of said) t.match(wrong.output(), line);
  }
});

t.test('what keeps it from running is said, with exit 1', async (t) => {
  const cells: [args: string[], variables: Record<string, string>, said: RegExp][] = [
    [
      [SETTLING],
      { DATA_DIR: './elsewhere' },
      /could not run: DATABASE_URL is not set.*PGlite, in DATA_DIR \.\/elsewhere/,
    ],
    [[SETTLING], { DATABASE_URL: 'mysql://host' }, /DATABASE_URL must be a URL/],
    [[SETTLING], { DATABASE_URL: 'postgres://127.0.0.1:1/nowhere' }, /could not run: DATABASE_URL: .*ECONNREFUSED/],
    [
      [moduleOf(t, 'throw new Error("no key for the model");')],
      { DATABASE_URL: 'postgres://127.0.0.1:1/nowhere' },
      /could not run: --handlers .*no key for the model/,
    ],
  ];
  for (const [[file = ''], variables, said] of cells) {
    const runner = runLeasehold(t, ['runner', '--handlers', file], variables);
    t.strictSame(await runner.ended(), { code: 1, signal: null });
    t.match(runner.output(), said);
  }
});

t.test('--help tells how it is called, also without anything else being right', async (t) => {
  const run = runLeasehold(t, ['runner', '--help'], { PORT: 'x' });
  t.strictSame(await run.ended(), { code: 0, signal: null });
  t.match(run.output(), /leasehold runner --handlers FILE/);
});

t.test('`leasehold serve` is the server, and so is `node src/main.ts`', async (t) => {
  for (const run of [
    runLeasehold(t, ['serve'], { DATABASE_URL: await freshDatabase(t) }),
    runMain(t, { DATABASE_URL: await freshDatabase(t) }),
  ]) {
    await until('it to listen', () => has(run, 'listening on'));
    run.child.kill('SIGTERM');
    t.strictSame(await run.ended(), { code: 0, signal: null });
  }
});
