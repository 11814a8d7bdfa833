import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { sql } from 'kysely';
import t, { type Test } from 'tap';
import { lapse, OPERATOR_KEY, type Server, testServer, until } from '../support/harness.ts';
import { runLeasehold, testFolder } from '../support/process.ts';

const HANDLERS = join(import.meta.dirname, 'handlers.ts');

/** A server, a file in which handlers write down what they begin, and workers as processes. */
async function place(t: Test) {
  const server = await testServer(t, {
    ...{ engine: 'postgres', background: true },
    settings: { reclaimOlderThanMs: 600_000 }, // however busy the machine is
  });
  const file = join(testFolder(t), 'begun');
  writeFileSync(file, '');
  return {
    server,
    begun: () => readFileSync(file, 'utf8').split('\n').slice(0, -1),
    enqueue: (sessionId: string, hangs = false) =>
      server.queue.enqueue({ environmentId: server.environment.id, sessionId, input: { file, hangs } }),
    worker: (...args: string[]) =>
      runLeasehold(t, ['worker', '--handlers', HANDLERS, ...args], {
        LEASEHOLD_URL: server.url,
        ANTHROPIC_ENVIRONMENT_KEY: server.environmentKey,
      }),
  };
}

async function rowOf({ database }: Server, sessionId: string) {
  const [row] = await database.rows(sql<Record<string, unknown>>`
    select w.id, w.state, w.outcome, w.attempt, w.worker_id, w.hand_out_count, r.result
    from ${database.names.workItems} w left join ${database.names.workResults} r on r.item_seq = w.seq
    where w.session_id = ${sessionId}`);
  return row ?? {};
}

t.test('a worker that is killed in its work loses it to another one, which is told; done once', async (t) => {
  const { server, begun, enqueue, worker } = await place(t);
  const first = worker('--worker-id', 'first');
  await enqueue('session', true);
  await until('it began', () => begun().length === 1);
  first.child.kill('SIGKILL');
  await first.ended();
  await lapse(server.database, `${(await rowOf(server, 'session')).id}`);
  worker('--worker-id', 'second');
  await until('it is done', async () => (await rowOf(server, 'session')).state === 'stopped');
  t.match(
    begun().map((line) => line.split(' ').slice(1)),
    [
      ['session', '1', 'false'],
      ['session', '1', 'true'],
    ],
  );
  t.match(await rowOf(server, 'session'), { outcome: 'succeeded', attempt: 1, worker_id: 'second', hand_out_count: 2 });
  t.same(JSON.parse(`${(await rowOf(server, 'session')).result}`), { sessionId: 'session' });
});

t.test('by SIGTERM it gives back what it cannot finish within the grace, and exits 0', async (t) => {
  const { server, begun, enqueue, worker } = await place(t);
  const { child, ended } = worker('--grace-seconds', '0');
  await enqueue('session', true);
  await until('it began', () => begun().length === 1);
  child.kill('SIGTERM');
  t.match(await ended(), { code: 0 });
  t.match(await rowOf(server, 'session'), { state: 'queued', outcome: null, attempt: 1 });
});

for (const [key, message] of [
  ['unknown', 'ANTHROPIC_ENVIRONMENT_KEY: the credential is missing, unknown'],
  [OPERATOR_KEY, 'ANTHROPIC_ENVIRONMENT_KEY, or --key: key must be an environment key, not an API key'],
] as const) {
  t.test(`a key that is not one for it (${key}) ends it with 1 and why, without a stack of ours`, async (t) => {
    const { worker } = await place(t);
    const { ended, output } = worker('--key', key);
    t.match(await ended(), { code: 1 });
    t.match(output(), `could not run: ${message}`);
    t.notMatch(output(), /"stack"/);
  });
}
