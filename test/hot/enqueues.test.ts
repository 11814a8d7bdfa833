import { sql } from 'kysely';
import t, { type Test } from 'tap';
import { createEnvironment } from '../../src/control/environments.ts';
import { createQueue } from '../../src/create-queue.ts';
import { watch } from '../support/gates.ts';
import { OPERATOR_KEY, testClient, testDatabase, testServer, until, untilBlocked } from '../support/harness.ts';

const ENQUEUE = /judged as materialized/;

async function place(t: Test) {
  const database = await testDatabase(t);
  const statements = watch(database, ENQUEUE);
  const queue = createQueue({ database: statements.database });
  t.teardown(() => queue.close());
  const { id: environmentId } = await createEnvironment(database, { name: 'enqueues', type: 'self_hosted' });
  return { database, queue, statements, environmentId };
}

t.test('enqueues that come at the same time share statements, each answered for itself', async (t) => {
  const { queue, statements, environmentId } = await place(t);
  await queue.enqueue({ environmentId, sessionId: 'covered' });
  await queue.enqueue({ environmentId, sessionId: 'known', requestId: 'known' });
  const before = statements.begun();
  const ask = (sessionId: string, requestId?: string, place = environmentId) =>
    queue.enqueue({ environmentId: place, sessionId, ...(requestId === undefined ? {} : { requestId }) });
  const fresh = Array.from({ length: 500 }, (_, n) => `s${n}`);
  const outcomes = await Promise.allSettled([
    ...fresh.map((sessionId) => ask(sessionId)),
    ...[ask('covered'), ask('another', 'known'), ask('known', 'known'), ask('lost', undefined, 'env_nowhere')],
    ...[ask('twice'), ask('twice', 'named')],
  ]);
  t.ok(statements.begun() - before <= 12, `${statements.begun() - before} statements`);
  const told = outcomes.map((outcome) =>
    outcome.status === 'fulfilled' ? outcome.value.created : outcome.reason.code,
  );
  t.strictSame(told.slice(0, 500), Array(500).fill(true));
  t.strictSame(told.slice(500, 504), [false, 'conflict', false, 'environment_not_found']);
  t.strictSame(told.slice(504).sort(), [false, true], 'the first of a slot covers the second');
  const sessions = outcomes.flatMap((o) => (o.status === 'fulfilled' ? [o.value.item.sessionId] : []));
  t.strictSame(sessions.slice(0, 500), fresh, 'each caller has its own item');
});

t.test('a slot that a transaction is about to take delays its own enqueue alone', async (t) => {
  const { database, queue, environmentId } = await place(t);
  const client = await testClient(t);
  await client.query('begin');
  await queue.enqueue({ environmentId, sessionId: 'slow' }, client);
  const order: string[] = [];
  const ask = async (sessionId: string) => {
    const { created } = await queue.enqueue({ environmentId, sessionId });
    order.push(`${sessionId} ${created}`);
  };
  const all = [ask('slow'), ...Array.from({ length: 20 }, (_, n) => ask(`${n}`))];
  await until('its neighbours are done', () => order.length === 20);
  await untilBlocked(client, database.schema);
  t.notOk(order.includes('slow false'));
  await Promise.all(Array.from({ length: 20 }, (_, n) => ask(`later ${n}`)));
  await client.query('commit');
  await Promise.all(all);
  t.equal(order.at(-1), 'slow false', 'it was covered by the one that was in the transaction');
});

t.test('several held slots, and what shares a statement with them does not wait for them', async (t) => {
  const { database, queue, environmentId } = await place(t);
  const client = await testClient(t);
  await client.query('begin');
  const held = ['a', 'b', 'c', 'd'];
  for (const sessionId of held) await queue.enqueue({ environmentId, sessionId }, client);
  const done: string[] = [];
  const ask = async (sessionId: string) => {
    await queue.enqueue({ environmentId, sessionId });
    done.push(sessionId);
  };
  const free = Array.from({ length: 20 }, (_, n) => `free ${n}`);
  const all = [...held, ...free].map(ask);
  await until('its neighbours are done', () => done.length === free.length);
  t.strictSame(done.toSorted(), free.toSorted());
  await untilBlocked(client, database.schema, 3);
  await client.query('commit');
  await Promise.all(all);
});

t.test('large inputs do not share a statement', async (t) => {
  const { queue, statements, environmentId } = await place(t);
  const input = 'x'.repeat(200_000);
  await Promise.all(Array.from({ length: 10 }, (_, n) => queue.enqueue({ environmentId, sessionId: `${n}`, input })));
  t.ok(statements.begun() >= 5, `${statements.begun()} statements`);
});

t.test('a race for a request id that another replica wins fails no neighbour', async (t) => {
  const { database, queue, environmentId } = await place(t);
  const other = createQueue({ database });
  for (let round = 0; round < 20; round++) {
    const ask = (by: typeof queue, sessionId: string, requestId: string) =>
      by.enqueue({ environmentId, sessionId: `${round} ${sessionId}`, requestId: `${round} ${requestId}` });
    const answers = await Promise.all(
      [queue, other].flatMap((by, n) => [
        ...['a', 'b', 'c'].map((name) => ask(by, name, name)),
        ask(by, `own ${n}`, `own ${n}`),
      ]),
    );
    t.equal(answers.filter(({ created }) => created).length, 5);
    t.equal(new Set(answers.map(({ item }) => item.id)).size, 5, 'one item a request id');
  }
});

t.test('each of those that shared a statement has its entry in the audit log', async (t) => {
  const { call, database, environment } = await testServer(t);
  const path = `/control/v1/environments/${environment.id}/work`;
  const answers = await Promise.all(
    ['a', 'b', 'c', 'a'].map((id) => call('POST', path, { as: OPERATOR_KEY, body: { data: { type: 'session', id } } })),
  );
  const entries = await database.rows(sql<{ target: string; status: number; request: string }>`
    select target, status, request_id as request from ${database.names.auditLog} where action = 'enqueueWork'`);
  const byRequest = (one: { request: string }, other: { request: string }) => one.request.localeCompare(other.request);
  t.strictSame(
    entries.toSorted(byRequest).map((entry) => ({ ...entry })),
    answers
      .map(({ json, status, headers }) => ({ target: json.id, status, request: headers.get('request-id') ?? '' }))
      .toSorted(byRequest),
  );
});
