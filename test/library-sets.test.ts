import { createHash } from 'node:crypto';
import { CamelCasePlugin, ParseJSONResultsPlugin } from 'kysely';
import pg from 'pg';
import t, { type Test } from 'tap';
import { createEnvironment, createQueue, type EnqueueRequest, only, QueueError, requestIdOf } from '../src/index.ts';
import { desk, stored } from './support/desk.ts';
import { watch } from './support/gates.ts';
import { databaseUrl, ENGINES, lapse, testClient, testDatabase, testServer } from './support/harness.ts';
import { BLOCK_MS, waitingServer } from './support/waiting.ts';

async function newLibrary(t: Test, engine: (typeof ENGINES)[number] = 'postgres') {
  const database = await testDatabase(t, engine);
  const queue = createQueue({ database });
  t.teardown(() => queue.close());
  const { id: environmentId } = await createEnvironment(database, { name: 'sets', type: 'self_hosted' });
  const asked = (sessionId: string, fields: Partial<EnqueueRequest> = {}) => ({ environmentId, sessionId, ...fields });
  const sessions = async () => (await stored(database, environmentId)).map(({ session }) => session);
  return { database, queue, environmentId, asked, sessions };
}

const created = (answers: readonly { created: boolean }[]) => answers.map((answer) => answer.created);

for (const engine of ENGINES) {
  t.test(`a batch in a Kysely transaction with plugins commits and rolls back with it (${engine})`, async (t) => {
    const { database, queue, environmentId, asked, sessions } = await newLibrary(t, engine);
    const kysely = database.kysely.withPlugin(new CamelCasePlugin()).withPlugin(new ParseJSONResultsPlugin());
    const batch = [
      asked('a', { requestId: 'a', metadata: { is_json: '{"a_b":1}' }, input: { some_key: '[1]' } }),
      asked('b', { kind: 'model_turn' }),
      asked('a', { followUp: true, input: 2 }),
    ];
    await t.rejects(
      kysely.transaction().execute(async (transaction) => {
        t.strictSame(created(await queue.enqueueAll(batch, transaction)), [true, true, false]);
        throw new Error('the caller changed its mind');
      }),
      /changed its mind/,
    );
    t.strictSame(await sessions(), []);

    const answers = await kysely.transaction().execute(async (transaction) => {
      const first = await queue.enqueueAll(batch, transaction);
      const conflict = queue.enqueueAll([asked('c'), asked('other', { requestId: 'a' })], transaction);
      await t.rejects(conflict, { code: 'conflict', message: /^items\.1\.request_id/, details: { index: 1 } });
      const twice = queue.enqueueAll([asked('c', { requestId: 'c' }), asked('d', { requestId: 'c' })], transaction);
      await t.rejects(twice, { code: 'conflict', message: /^items\.1\.request_id/, details: { index: 1 } });
      await t.rejects(queue.enqueueAll([asked('c'), { ...asked('d'), environmentId: 'env_unknown' }], transaction), {
        code: 'environment_not_found',
        message: /env_unknown/,
      });
      t.strictSame(
        await queue.enqueueAll(batch, transaction),
        first.map((answer) => ({ ...answer, created: false })),
      );
      return first;
    });
    t.strictSame(created(answers), [true, true, false]);
    t.strictSame(
      answers.map(({ lane }) => lane),
      ['wire', 'process', 'wire'],
    );
    t.same(answers[0]?.item.metadata, { is_json: '{"a_b":1}' });
    t.strictSame(await sessions(), ['a', 'b'], 'nothing of what was refused');
    const id = answers[0]?.item.id ?? '';
    const stopped = await kysely
      .transaction()
      .execute((transaction) => queue.stop([{ environmentId, id, force: true, reason: 'operator' }], transaction));
    t.same(stopped, [{ state: 'stopped', isFollowed: true }]);
    t.match(await stored(database, environmentId), [{ input: '{"some_key":"[1]"}' }, {}, { session: 'a', input: '2' }]);
  });
}

t.test('what was followed when it began to wind down is not followed again, also beside one that is', async (t) => {
  const { queue, environmentId, asked } = await newLibrary(t);
  const answers = await queue.enqueueAll([
    asked('a'),
    asked('b'),
    asked('a', { followUp: true }),
    asked('b', { followUp: true }),
  ]);
  const [a, b] = [0, 1].map((n) => ({ environmentId, id: answers[n]?.item.id ?? '' }));
  if (a === undefined || b === undefined) throw new Error('two items were enqueued');
  await queue.poll({ environmentId });
  await queue.ack([a]);
  await queue.heartbeat([{ ...a, expectedLastHeartbeat: 'NO_HEARTBEAT', isRetry: false }]);
  const ended = (ref: typeof a, force: boolean) => ({ ...ref, force, reason: 'worker' as const });
  t.same(await queue.stop([ended(a, false)]), [{ state: 'stopping', isFollowed: true }]);
  t.same(await queue.stop([ended(a, true), ended(b, true)]), [
    { state: 'stopped', isFollowed: false },
    { state: 'stopped', isFollowed: true },
  ]);
});

t.test('follow-ups of a batch go with their own environment, session and kind, each with its input', async (t) => {
  const { database, queue, environmentId, asked } = await newLibrary(t);
  const { id: elsewhere } = await createEnvironment(database, { name: 'elsewhere', type: 'self_hosted' });
  const batch = [
    asked('a'),
    asked('a', { followUp: true, input: 'a' }),
    asked('b'),
    asked('a', { kind: 'web_exec' }),
    { ...asked('a'), environmentId: elsewhere },
    asked('c'),
    asked('c', { followUp: true, input: 'c' }),
  ];
  const answers = await queue.enqueueAll(batch);
  t.strictSame(created(answers), [true, false, true, true, true, true, false]);
  const stops = [0, 2, 4, 5].flatMap((n) => {
    const { environmentId, id = '' } = answers[n]?.item ?? { environmentId: '' };
    return [{ environmentId, id, force: true, reason: 'operator' as const }];
  });
  t.strictSame(
    await queue.stop(stops),
    [true, false, false, true].map((isFollowed) => ({ state: 'stopped', isFollowed })),
  );
  const left = (await stored(database, environmentId)).filter(({ state }) => state === 'queued');
  const told = left.map(({ session, kind, input }) => [session, kind, input]).toSorted();
  t.strictSame(told, [
    ['a', 'tool_exec', '"a"'],
    ['a', 'web_exec', null],
    ['c', 'tool_exec', '"c"'],
  ]);
  t.match(await stored(database, elsewhere), [{ state: 'stopped' }]);
});

t.test("a bare client's type parsers reach neither a batch nor a stop", async (t) => {
  const { database, queue, environmentId, asked, sessions } = await newLibrary(t);
  const odd = (parse: (text: string, oid: number) => unknown) =>
    new pg.Client({
      connectionString: databaseUrl(),
      types: {
        getTypeParser: (oid: number) => (oid === 25 ? String : (text: string) => parse(text, oid)),
      } as unknown as pg.CustomTypesConfig,
    });
  const clients = [await testClient(t), odd((_, oid) => ({ oid })), odd((text) => text), odd(() => null)];
  for (const [n, client] of clients.entries()) {
    if (n > 0) {
      await client.connect();
      t.teardown(() => client.end());
    }
    const batch = [asked(`a ${n}`, { requestId: `a ${n}` }), asked(`b ${n}`), asked(`a ${n}`, { followUp: true })];
    await client.query('begin');
    const answers = await queue.enqueueAll(batch, client);
    t.strictSame(created(answers), [true, true, false], `client ${n}`);
    await t.rejects(queue.enqueue(asked('other', { requestId: `a ${n}` }), client), { code: 'conflict' });
    t.match(await queue.enqueue(asked(`a ${n}`, { requestId: `a ${n}` }), client), { created: false });
    const ids = [answers[0]?.item.id ?? '', answers[1]?.item.id ?? '', 'work_unknown'];
    const stops = ids.map((id) => ({ environmentId, id, force: false, reason: 'worker' as const }));
    const outcomes = await queue.stop(stops, client);
    t.match(outcomes, [
      { state: 'stopped', isFollowed: true },
      { state: 'stopped', isFollowed: false },
      { code: 'not_found', message: 'work item work_unknown was not found in this environment' },
    ]);
    await client.query('commit');
  }
  t.equal((await sessions()).length, 3 * clients.length);
  t.equal(database.isTransaction, false);
});

t.test('a batch of none, of too many, or with a bad item is refused as a whole', async (t) => {
  const { queue, asked, sessions } = await newLibrary(t);
  for (const count of [0, 1_001]) {
    const batch = Array.from({ length: count }, (_, n) => asked(`${n}`));
    await t.rejects(queue.enqueueAll(batch), { code: 'invalid_request', message: new RegExp(`1 to 1000 .*${count}$`) });
  }
  const cycle: Record<string, unknown> = {};
  cycle.self = cycle;
  for (const [field, ...values] of [
    ['input', Number.NaN, [{ a: Number.NEGATIVE_INFINITY }], 1n, cycle, () => {}, Symbol('x'), 'a\0'],
    ['requestId', '', 'r'.repeat(201), 1, '\ud800'],
    ['followUp', 'yes', 1, null],
    ['priority', Number.NaN, 101],
    ['maxHandOuts', 0, 1_000_001],
    ['notBefore', new Date(), 'now'],
    ['kind', 'constructor'],
    ['traceContext', { traceparent: 'a\nb' }],
  ] as const) {
    for (const value of values) {
      const bad = { ...asked('bad'), [field]: value } as unknown as EnqueueRequest;
      const refused = { code: 'invalid_request', message: new RegExp(`^items\\.1\\.${field}`) };
      await t.rejects(queue.enqueueAll([asked('good'), bad]), refused, field);
      await t.rejects(queue.enqueue(bad), { code: 'invalid_request', message: new RegExp(`^${field}`) });
    }
  }
  t.strictSame(await sessions(), []);
});

t.test('a request id is made of its parts, and tells where one ends', (t) => {
  const hash = createHash('sha256').update('2:ab,3:€,').digest('base64url');
  t.equal(requestIdOf('ab', '€'), `req-${hash}`);
  const ids = [['a', 'b'], ['ab'], ['a', 'b', ''], ['', 'a', 'b'], ['1:a,1:b,'], ['a,1:b'], ['b', 'a']].map((parts) =>
    requestIdOf(...parts),
  );
  t.equal(new Set(ids).size, ids.length);
  t.throws(() => requestIdOf(), { code: 'invalid_request' });
  t.throws(() => requestIdOf('a\ud800'), { code: 'invalid_request' }, 'it would be as any other of them');
  t.throws(() => requestIdOf('a', 1 as unknown as string), QueueError);
  t.end();
});

t.test('an enqueue does not fail because its notification does', async (t) => {
  const notified = watch(await testDatabase(t), /pg_notify/);
  const server = await testServer(t, { database: notified.database });
  const { enqueue, batch } = desk(server, server.environment.id);
  notified.fail(new Error('the notification queue is full'));
  t.equal((await enqueue('over HTTP')).status, 201);
  t.equal((await batch([['in a batch']])).status, 200);
  t.match(await server.queue.enqueue({ environmentId: server.environment.id, sessionId: 'library' }), {
    created: true,
  });
  t.ok(notified.begun() > 0, 'it was tried');
  notified.fail(undefined);
});

t.test(
  'a waiting poll is woken by a batch, by what is put back, and by a successor of a stop of the library',
  async (t) => {
    const server = await waitingServer(t);
    const { queue, database, environment } = server;
    const { enqueue, batch, requeue } = desk(server, environment.id);
    const woken = async (what: string, act: () => Promise<unknown>) => {
      const { ended } = await server.wait(BLOCK_MS);
      await act();
      const { answer } = await ended;
      t.type(answer.json?.id, 'string', `woken by ${what}`);
      return answer.json.id;
    };
    const id = await woken('a batch', () => batch([['session', { max_hand_outs: 1 }]]));
    await lapse(database, id);
    t.equal((await server.poll()).answer.json, null, 'set aside');
    const again = await woken('what is put back', () => requeue(id));
    await enqueue('session', { follow_up: true });
    const stops = [{ environmentId: environment.id, id: again, force: true, reason: 'operator' as const }];
    const next = await woken('a successor', async () => t.match(only(await queue.stop(stops)), { isFollowed: true }));
    t.equal((await server.call('GET', server.work(`/${next}`))).json.data.id, 'session');
  },
);
