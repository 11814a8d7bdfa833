import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { sql } from 'kysely';
import t from 'tap';
import { OPERATOR_KEY, testServer, until } from '../support/harness.ts';
import { runCommand } from '../support/process.ts';

const ROOT = join(import.meta.dirname, '..', '..');
const FILE = join(ROOT, 'examples/backend.mjs');
const LINES_MAX = 60;

t.test('the page shows the example as it is, in less than 60 lines', async (t) => {
  const code = readFileSync(FILE, 'utf8');
  t.ok(code.trimEnd().split('\n').length < LINES_MAX);
  t.ok(readFileSync(join(ROOT, 'docs/add-a-backend.md'), 'utf8').includes(`\`\`\`js\n${code}\`\`\`\n`));
});

t.test('the example does work with nothing but a key, and keeps what came of it', async (t) => {
  const server = await testServer(t, { engine: 'postgres', background: true });
  const { database, environment, queue } = server;
  const { workItems, workResults } = database.names;
  const backend = runCommand(t, process.execPath, [FILE], {
    LEASEHOLD_URL: server.url,
    ANTHROPIC_ENVIRONMENT_KEY: server.environmentKey,
  });
  const seqs: string[] = [];
  for (const n of [1, 2]) {
    const { item } = await queue.enqueue({ environmentId: environment.id, sessionId: `${n}`, input: { n } });
    seqs.push(item.seq);
  }
  for (const [index, seq] of seqs.entries()) {
    const row = async () =>
      (
        await database.rows(sql<{ outcome: string; worker_id: string; result: string }>`
        select w.outcome, w.worker_id, r.result from ${workItems} w join ${workResults} r on r.item_seq = w.seq
        where w.seq = ${seq}::bigint`)
      )[0];
    await until('it is done', async () => (await row()) !== undefined);
    t.match(await row(), { outcome: 'succeeded', worker_id: 'my-backend' });
    t.same(JSON.parse((await row())?.result ?? ''), { echoed: { n: index + 1 }, wanted: true });
  }
  t.equal(backend.output(), '');
  t.equal((await server.call('GET', server.work('/stats'), { as: OPERATOR_KEY })).json.depth, 0);
});
