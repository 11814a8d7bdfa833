import { CamelCasePlugin, ParseJSONResultsPlugin, sql } from 'kysely';
import pg from 'pg';
import t from 'tap';
import { createEnvironment, createQueue, type EnqueueRequest, QueueError } from '../src/index.ts';
import { STATEMENTS, watch } from './support/gates.ts';
import { databaseUrl, ENGINES, testClient, testDatabase, testServer, until } from './support/harness.ts';

const INSTANT = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$/;

for (const engine of ENGINES) {
  t.test(engine, async (t) => {
    const database = await testDatabase(t, engine);
    const queue = createQueue({ database });
    t.teardown(() => queue.close());
    const { id: environmentId } = await createEnvironment(database, { name: 'library', type: 'self_hosted' });
    const { id: cloudId } = await createEnvironment(database, { name: 'cloud', type: 'cloud' });

    t.test('enqueue answers that it created the item, then that the live one covers it', async (t) => {
      const traceContext = { traceparent: `00-${'1'.repeat(32)}-${'2'.repeat(16)}-01`, tracestate: 'a=b' };
      const request = { environmentId, sessionId: 'created', metadata: { team: 'tools' }, traceContext };
      const first = await queue.enqueue(request);
      t.match(first, {
        created: true,
        lane: 'wire',
        item: {
          id: /^work_/,
          environmentId,
          sessionId: 'created',
          kind: 'tool_exec',
          state: 'queued',
          createdAt: INSTANT,
        },
      });
      t.same(first.item.metadata, { team: 'tools' });
      t.same(first.item.traceContext, traceContext);
      const second = await queue.enqueue({ ...request, metadata: { team: 'others' } });
      t.same(second, { ...first, created: false }, 'the item is as it was');
      await queue.stop([{ environmentId, id: first.item.id, force: true, reason: 'operator' }]);
      t.match(await queue.enqueue(request), { created: true }, 'once that has ended, there is a new one');
    });

    t.test('only tool_exec of a self_hosted environment is on the wire', async (t) => {
      for (const [request, lane] of [
        [{ environmentId, sessionId: 'lane', kind: 'tool_exec' }, 'wire'],
        [{ environmentId, sessionId: 'lane', kind: 'model_turn' }, 'process'],
        [{ environmentId: cloudId, sessionId: 'lane', kind: 'tool_exec' }, 'process'],
      ] as const) {
        const enqueued = await queue.enqueue(request);
        t.match(enqueued, { created: true, lane });
        if (lane === 'process') {
          await t.rejects(queue.retrieve({ environmentId: request.environmentId, id: enqueued.item.id }), {
            code: 'not_found',
          });
        }
      }
      t.equal(await queue.poll({ environmentId: cloudId }), null);
    });

    t.test(
      'an enqueue in a Kysely transaction is there after its commit, and leaves nothing after a rollback',
      async (t) => {
        const rolledBack = database.kysely.transaction().execute(async (transaction) => {
          t.match(await queue.enqueue({ environmentId, sessionId: 'kysely' }, transaction), { created: true });
          t.match(await queue.enqueue({ environmentId, sessionId: 'kysely' }, transaction), { created: false });
          throw new Error('the caller changed its mind');
        });
        await t.rejects(rolledBack, /changed its mind/);
        const enqueued = await database.kysely
          .transaction()
          .execute((transaction) => queue.enqueue({ environmentId, sessionId: 'kysely' }, transaction));
        t.equal(enqueued.created, true, 'nothing of the first one was left');
        t.same(await queue.enqueue({ environmentId, sessionId: 'kysely' }), { ...enqueued, created: false });
      },
    );

    t.test('plugins of the caller, which rewrite names and results, do not reach our statement', async (t) => {
      const kysely = database.kysely.withPlugin(new CamelCasePlugin()).withPlugin(new ParseJSONResultsPlugin());
      const request = { environmentId, sessionId: 'plugins', metadata: { team: 'tools' } };
      const enqueued = await kysely.transaction().execute((transaction) => queue.enqueue(request, transaction));
      t.match(enqueued, { created: true, item: { environmentId, metadata: { team: 'tools' }, createdAt: INSTANT } });
    });

    t.test('an enqueue in a transaction of the caller is heard with its commit, and not before', async (t) => {
      const { id } = await createEnvironment(database, { name: 'heard', type: 'self_hosted' });
      const heard: string[] = [];
      const listener = database.listen({
        onNotification: (payload) => void (payload.startsWith(id) && heard.push(payload)),
        onListening: () => {},
      });
      t.teardown(() => listener.close());
      await until('listening', () => listener.isListening());
      const rolledBack = database.kysely.transaction().execute(async (transaction) => {
        await queue.enqueue({ environmentId: id, sessionId: 'rolled back' }, transaction);
        throw new Error('the caller changed its mind');
      });
      await t.rejects(rolledBack, /changed its mind/);
      t.same(heard, []);
      await database.kysely
        .transaction()
        .execute((transaction) => queue.enqueue({ environmentId: id, sessionId: 'heard' }, transaction));
      await until('it was heard', () => heard.length > 0);
      t.same(heard, [id]);
    });

    t.test('a waiting poll is woken by an enqueue in a transaction of the caller', async (t) => {
      const looks = watch(database, STATEMENTS.look);
      const overs = watch(looks.database, STATEMENTS.lookOver);
      overs.fail(new Error('nobody looks over all')); // or the item might be found by the clock
      const other = createQueue({ database: overs.database });
      other.start();
      t.teardown(() => other.close());
      await until('it listens', () => other.isListening());
      const { id } = await createEnvironment(database, { name: 'woken', type: 'self_hosted' });
      const poll = other.poll({ environmentId: id, blockMs: 999 });
      await until('it was looked for', () => looks.ended() > 0);
      const { item } = await database.kysely
        .transaction()
        .execute((transaction) => queue.enqueue({ environmentId: id, sessionId: 'session' }, transaction));
      t.equal((await poll)?.item.id, item.id, 'woken, not out of time');
    });

    const BAD: readonly [unknown, RegExp][] = [
      [{ environmentId: '' }, /environmentId/],
      [{ environmentId: 'env_\0' }, /environmentId/],
      [{ sessionId: '' }, /sessionId/],
      [{ sessionId: 5 }, /sessionId/],
      [{ sessionId: 'a\0b' }, /sessionId/],
      [{ sessionId: '\ud800' }, /sessionId/],
      [{ sessionId: 'x'.repeat(257) }, /sessionId .*256/],
      [{ kind: 'no_such' }, /kind .*tool_exec/],
      [{ priority: 101 }, /priority .*-100 to 100/],
      [{ priority: -101 }, /priority/],
      [{ priority: 0.5 }, /priority/],
      [{ priority: '1' }, /priority/],
      ...[
        'tomorrow',
        '2026-01-01',
        '2026-01-01T00:00:00',
        '2026-02-30T00:00:00Z',
        '2026-13-01T00:00:00Z',
        '0000-01-01T00:00:00Z',
        '2026-01-01T00:00:00+23:59',
        '2026-01-01T00:00:00Z\0',
      ].map((notBefore): [unknown, RegExp] => [{ notBefore }, /notBefore/]),
      [{ traceContext: { traceparent: 'a\nb' } }, /traceparent/],
      [{ traceContext: { traceparent: '00-1-2-01', tracestate: 'a\0' } }, /tracestate/],
    ];

    t.test('bad input is refused with the name of the field, and nothing is put in', async (t) => {
      const before = (await queue.list(environmentId, { limit: 1_000 })).items.length;
      for (const [part, message] of BAD) {
        const request = { environmentId, sessionId: 'bad', ...(part as object) } as EnqueueRequest;
        await t.rejects(queue.enqueue(request), { code: 'invalid_request', message }, JSON.stringify(part));
      }
      for (const [metadata, problems] of [
        ['text', 1],
        [['a'], 1],
        [{ key: 5, other: null }, 2],
        [{ ['k'.repeat(65)]: 'v'.repeat(513) }, 2],
        [{ 'a\0': '\udc00' }, 1],
        [Object.fromEntries(Array.from({ length: 17 }, (_, n) => [`${n}`, ''])), 1],
      ] as const) {
        const request = { environmentId, sessionId: 'bad', metadata } as unknown as EnqueueRequest;
        const error = await queue.enqueue(request).catch((refused) => refused);
        t.match(error, { code: 'invalid_metadata', message: /metadata/ }, JSON.stringify(metadata));
        t.equal(error.details?.problems.length, problems, 'each problem is listed');
      }
      await t.rejects(queue.enqueue({ environmentId: 'env_unknown', sessionId: 'bad' }), {
        code: 'environment_not_found',
      });
      t.equal((await queue.list(environmentId, { limit: 1_000 })).items.length, before);
    });

    t.test('bad input of a poll or a heartbeat is refused with the name of the field', async (t) => {
      for (const [part, message] of [
        [{ blockMs: 0 }, /blockMs .*1 to 999/],
        [{ blockMs: 1_000 }, /blockMs/],
        [{ blockMs: 1.5 }, /blockMs/],
        [{ reclaimOlderThanMs: 0 }, /reclaimOlderThanMs/],
        [{ reclaimOlderThanMs: Number.NaN }, /reclaimOlderThanMs/],
        [{ environmentId: 'env_\0' }, /environmentId/],
        [{ workerId: 'a\0' }, /workerId/],
      ] as const) {
        await t.rejects(queue.poll({ environmentId, ...part }), { code: 'invalid_request', message }, `${message}`);
      }
      await t.rejects(queue.poll({ environmentId: 'env_unknown' }), { code: 'environment_not_found' });
      const beat = { environmentId, id: 'work_x', expectedLastHeartbeat: 'NO_HEARTBEAT', isRetry: false };
      await t.rejects(async () => queue.heartbeat([{ ...beat, desiredTtlSeconds: 0 }]), {
        code: 'invalid_request',
        message: /desiredTtlSeconds/,
      });
    });

    t.test('what may not be handed out before an instant waits for it; priority goes first', async (t) => {
      const { id } = await createEnvironment(database, { name: 'order', type: 'self_hosted' });
      const request = { environmentId: id, notBefore: '2999-01-01T00:00:00+02:00' };
      const later = await queue.enqueue({ ...request, sessionId: 'later' });
      const low = await queue.enqueue({ environmentId: id, sessionId: 'low', priority: -100 });
      const normal = await queue.enqueue({ environmentId: id, sessionId: 'normal' });
      const high = await queue.enqueue({ environmentId: id, sessionId: 'high', priority: 100 });
      for (const { item } of [high, normal, low]) {
        t.equal((await queue.poll({ environmentId: id }))?.item.id, item.id);
      }
      t.equal(await queue.poll({ environmentId: id }), null);
      t.match(await queue.stats(id), { depth: 0, pending: 3 });
      await database.rows(sql`update ${database.names.workItems} set not_before = now() where id = ${later.item.id}`);
      t.equal((await queue.poll({ environmentId: id }))?.item.id, later.item.id);
    });
  });
}

t.test(
  "an enqueue in a bare pg client's transaction is there after its commit, and leaves nothing after a rollback",
  async (t) => {
    const database = await testDatabase(t);
    const queue = createQueue({ database });
    t.teardown(() => queue.close());
    const { id: environmentId } = await createEnvironment(database, { name: 'library', type: 'self_hosted' });
    const request = { environmentId, sessionId: 'session', metadata: { a: 'b' } };
    const custom = new pg.Client({
      connectionString: databaseUrl(),
      // Parsers as far from the usual as can be: every type but text becomes an object.
      types: {
        getTypeParser: (oid: number) => (oid === 25 ? String : () => ({ oid })),
      } as unknown as pg.CustomTypesConfig,
    });
    await custom.connect();
    t.teardown(() => custom.end());
    for (const client of [await testClient(t), custom]) {
      const row = { created: true, item: { environmentId, metadata: { a: 'b' }, createdAt: INSTANT, seq: /^\d+$/ } };
      await client.query('begin');
      t.match(await queue.enqueue(request, client), row);
      await client.query('rollback');
      t.equal(await queue.poll({ environmentId }), null);

      await client.query('begin');
      const enqueued = await queue.enqueue(request, client);
      t.match(enqueued, row);
      t.same(await queue.enqueue(request, client), { ...enqueued, created: false });
      await t.rejects(queue.enqueue({ ...request, environmentId: 'env_unknown' }, client), {
        code: 'environment_not_found',
      });
      t.equal(await queue.poll({ environmentId }), null, 'nobody sees it yet');
      await client.query('commit');
      t.same(await queue.enqueue(request), { ...enqueued, created: false });
      await queue.stop([{ environmentId, id: enqueued.item.id, force: true, reason: 'operator' }]);
    }
  },
);

t.test("a failure of the statement in the caller's transaction comes out as it is", async (t) => {
  const database = await testDatabase(t);
  const queue = createQueue({ database });
  t.teardown(() => queue.close());
  const { id: environmentId } = await createEnvironment(database, { name: 'library', type: 'self_hosted' });
  const client = await testClient(t);
  await client.query('begin isolation level repeatable read');
  await client.query('select count(*) from pg_class');
  await queue.enqueue({ environmentId, sessionId: 'session' });
  const error = await queue.enqueue({ environmentId, sessionId: 'session' }, client).catch((failed) => failed);
  t.match(error, { code: '40001' }, 'a serialisation failure is for the caller to retry');
  t.notOk(error instanceof QueueError);
  await client.query('rollback');
});

t.test('ids that cannot be stored are not found, each for itself, and never reach SQL', async (t) => {
  const { queue, environment, enqueue } = await testServer(t);
  const there = { environmentId: environment.id, id: await enqueue('session-1') };
  const impossible = { environmentId: environment.id, id: 'work_\0' };
  const elsewhere = { environmentId: 'env_\ud800', id: there.id };
  const codes = (outcomes: readonly unknown[]) => outcomes.map((o) => (o instanceof QueueError ? o.code : 'done'));
  const refs = [impossible, there, elsewhere];
  t.strictSame(codes(await queue.ack(refs)), ['not_found', 'done', 'not_found']);
  const beat = { expectedLastHeartbeat: 'NO_HEARTBEAT', isRetry: false };
  t.strictSame(codes(await queue.heartbeat(refs.map((ref) => ({ ...ref, ...beat })))), [
    'not_found',
    'done',
    'not_found',
  ]);
  for (const ref of [impossible, elsewhere]) {
    await t.rejects(queue.retrieve(ref), { code: 'not_found' });
    await t.rejects(queue.patchMetadata(ref, {}), { code: 'not_found' });
  }
  await t.rejects(queue.stats('env_\0'), { code: 'invalid_request', message: /^environmentId must be/ });
  await t.rejects(queue.list('env_\0', { limit: 1 }), { code: 'invalid_request', message: /^environmentId must be/ });
  const stops = refs.map((ref) => ({ ...ref, force: true, reason: 'operator' as const }));
  t.strictSame(codes(await queue.stop(stops)), ['not_found', 'done', 'not_found']);
});
