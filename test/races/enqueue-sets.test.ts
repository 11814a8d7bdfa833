import { sql } from 'kysely';
import t, { type Test } from 'tap';
import { createEnvironment } from '../../src/control/environments.ts';
import type { Database } from '../../src/db/connect.ts';
import { deleteEnvironment } from '../../src/index.ts';
import { type EnqueueRequest, enqueue, enqueueAll } from '../../src/queue/enqueue.ts';
import { stop } from '../../src/queue/stop.ts';
import { desk, stored } from '../support/desk.ts';
import { databaseUrl, testDatabase, testServer } from '../support/harness.ts';
import { hold, replicas } from '../support/interleave.ts';

async function newServer(t: Test, given?: Database) {
  const server = await testServer(t, given === undefined ? {} : { database: given });
  const { database, environment } = server;
  const asked = (sessionId: string, fields: Partial<EnqueueRequest> = {}): EnqueueRequest => ({
    ...{ environmentId: environment.id, sessionId },
    ...fields,
  });
  const sessions = async () => (await stored(database, environment.id)).map(({ session }) => session);
  return { ...server, ...desk(server, environment.id), asked, sessions };
}

for (const end of ['commit', 'rollback'] as const) {
  for (const session of ['same', 'other'] as const) {
    t.test(
      `a request id that is being written for a session is waited for by the ${session} session; ${end}`,
      async (t) => {
        const { database, enqueue: ask, asked, sessions } = await newServer(t);
        const first = await hold(t, database, (held) => enqueue(held, asked('same', { requestId: 'request' })));
        const second = ask(session, { request_id: 'request' });
        await first.untilBlocked();
        await first[end]();
        const { status, json } = await second;
        if (end === 'rollback') t.match([status, await sessions()], [201, [session]]);
        else if (session === 'other') t.match([status, await sessions()], [409, ['same']]);
        else t.match([status, json.id, await sessions()], [200, first.answer.item.id, ['same']]);
      },
    );
  }

  t.test(
    `a request id that is being remembered for a covering item is waited for by another session; ${end}`,
    async (t) => {
      const { database, enqueue: ask, asked, sessions } = await newServer(t);
      await ask('covering');
      const first = await hold(t, database, (held) => enqueue(held, asked('covering', { requestId: 'request' })));
      const second = ask('other', { request_id: 'request' });
      await first.untilBlocked();
      await first[end]();
      t.equal((await second).status, end === 'commit' ? 409 : 201);
      t.strictSame(await sessions(), end === 'commit' ? ['covering'] : ['covering', 'other']);
    },
  );

  t.test(`a batch waits for a single one of its sessions, and a single one for a batch; ${end}`, async (t) => {
    const { database, enqueue: ask, batch, asked, sessions } = await newServer(t);
    const single = await hold(t, database, (held) => enqueue(held, asked('b')));
    const many = batch([['a'], ['b'], ['c']]);
    await single.untilBlocked();
    await single[end]();
    const created = (await many).json.data.map((entry: { created: boolean }) => entry.created);
    t.strictSame(created, [true, end === 'rollback', true]);

    const held = await hold(t, database, (held) =>
      enqueueAll(
        held,
        ['d', 'e'].map((session) => asked(session)),
      ),
    );
    const alone = ask('e');
    await held.untilBlocked();
    await held[end]();
    t.equal((await alone).status, end === 'commit' ? 200 : 201);
    const left = end === 'commit' ? ['a', 'b', 'c', 'd', 'e'] : ['a', 'b', 'c', 'e'];
    t.strictSame((await sessions()).toSorted(), left, 'no session twice');
  });

  t.test(`what waits for an environment that is being deleted; ${end}`, async (t) => {
    const server = await newServer(t);
    const { database, queue, environment, asked, enqueue: ask, batch } = server;
    const { id } = await createEnvironment(database, { name: `deleted ${environment.id}`, type: 'self_hosted' });
    const elsewhere = desk(server, id);
    const deleted = await hold(t, database, (held) => deleteEnvironment(held, id));
    const gone = (sessionId: string, fields = {}) => asked(sessionId, { ...fields, environmentId: id });
    const waiting = Promise.allSettled([
      queue.enqueue(gone('plain')),
      queue.enqueue(gone('with request id', { requestId: 'request' })),
      queue.enqueueAll([asked('of another environment'), gone('in a batch')]),
      database.kysely.transaction().execute(async (transaction) => {
        await queue.enqueue(asked('mine'), transaction);
        await queue.enqueueAll([asked('of another, in mine'), gone('in mine')], transaction).catch((error) => {
          t.equal(end, 'commit');
          t.match(error, { code: 'environment_not_found', message: new RegExp(id) });
        });
        return queue.enqueue(asked('mine, later'), transaction);
      }),
    ]);
    const [single, many] = [elsewhere.enqueue('over HTTP'), elsewhere.batch([['a'], ['b']])];
    await deleted.untilBlocked(6);
    await deleted[end]();
    const outcomes = await waiting;
    const refused = { status: 'rejected', reason: { code: 'environment_not_found', message: new RegExp(id) } };
    for (const outcome of outcomes.slice(0, 3)) t.match(outcome, end === 'commit' ? refused : { status: 'fulfilled' });
    t.match(outcomes[3], { status: 'fulfilled' }, "the caller's transaction goes on");
    t.strictSame([(await single).status, (await many).status], end === 'commit' ? [404, 404] : [201, 200]);
    const here = (await stored(database, environment.id)).map(({ session }) => session);
    const both = ['of another environment', 'of another, in mine'];
    t.strictSame(here.toSorted(), ['mine', 'mine, later', ...(end === 'commit' ? [] : both)].toSorted());
    t.match([(await ask('here')).status, (await batch([['there']])).status], [201, 200]);
  });
}

t.test('batches of the same sessions in opposite order wait for one another, and all succeed', async (t) => {
  const { database, asked, batch, sessions } = await newServer(t);
  const middle = await hold(t, database, (held) => enqueue(held, asked('m')));
  const names = ['a', 'm', 'z'];
  const batches = [names, names.toReversed()].map((order) => batch(order.map((name) => [name, { request_id: name }])));
  await middle.untilBlocked(2);
  await middle.commit();
  for (const { status } of await Promise.all(batches)) t.equal(status, 200);
  t.strictSame((await sessions()).toSorted(), names);
});

t.test('any batches at once, with follow-ups and request ids in any order, all succeed', async (t) => {
  const { database, asked, sessions } = await newServer(t);
  const others = await replicas(t, database, 6);
  for (let round = 0; round < 8; round++) {
    const names = Array.from({ length: 20 }, (_, n) => `${round} ${n}`);
    const answers = await Promise.all(
      others.map(({ queue }, n) => {
        const order = names.map((_, at) => names[(at * ([1, 3, 7, 9, 11, 13][n] ?? 1) + n) % 20] ?? '');
        const requests = order.map((name, at) =>
          asked(name, { ...(at % 2 === 0 ? { requestId: name } : {}), followUp: (at + n) % 3 === 0 }),
        );
        return queue.enqueueAll(n % 2 === 0 ? requests : requests.toReversed());
      }),
    );
    t.equal(answers.flat().filter(({ created }) => created).length, 20, `round ${round}: each was made once`);
  }
  t.equal((await sessions()).length, 160);
});

t.test('a batch that a deadlock undid is tried again', async (t) => {
  // Who looks for a deadlock looks once: the server late enough to find it however slow the machine, the other never.
  const url = new URL(databaseUrl());
  url.searchParams.set('options', '-c deadlock_timeout=3s');
  const { database, asked, batch, sessions } = await newServer(
    t,
    await testDatabase(t, 'postgres', { connectionString: url.href }),
  );
  const first = await hold(t, database, async (held) => {
    await held.rows(sql`set local deadlock_timeout = '1min'`);
    await enqueue(held, asked('z'));
    return held;
  });
  const many = batch([['a', { request_id: 'a' }], ['z']]);
  await first.untilBlocked();
  // Crosswise: the batch is the one that is undone.
  t.match(await enqueue(first.answer, asked('a')), { created: true });
  await first.commit();
  const { status, json } = await many;
  t.equal(status, 200);
  t.strictSame(
    json.data.map(({ created }: { created: boolean }) => created),
    [false, false],
  );
  t.strictSame(await sessions(), ['z', 'a']);
});

t.test("in a transaction of the caller's a lost race costs nothing of what was written before", async (t) => {
  const { database, queue, asked, sessions } = await newServer(t);
  await queue.enqueue(asked('before', { requestId: 'known' }));
  for (const end of ['commit', 'rollback'] as const) {
    const first = await hold(t, database, (held) => enqueueAll(held, [asked(`b ${end}`, { requestId: `b ${end}` })]));
    const mine = database.kysely.transaction().execute(async (transaction) => {
      await queue.enqueue(asked(`mine ${end}`), transaction);
      const refused = queue.enqueue(asked('other', { requestId: 'known' }), transaction);
      await t.rejects(refused, { code: 'conflict' });
      return queue.enqueueAll([asked(`a ${end}`), asked(`b ${end}`, { requestId: `b ${end}` })], transaction);
    });
    await first.untilBlocked();
    await first[end]();
    t.strictSame(
      (await mine).map(({ created }) => created),
      [true, end === 'rollback'],
    );
  }
  const left = ['before', ...['commit', 'rollback'].flatMap((end) => [`a ${end}`, `b ${end}`, `mine ${end}`])];
  t.strictSame((await sessions()).toSorted(), left.toSorted());
});

t.test('100 requests at once under one request id: one makes the item, 99 are answered it', async (t) => {
  const { enqueue: ask, sessions } = await newServer(t);
  const same = await Promise.all(Array.from({ length: 100 }, () => ask('session', { request_id: 'request' })));
  t.equal(same.filter(({ status }) => status === 201).length, 1);
  t.equal(same.filter(({ status }) => status === 200).length, 99);
  t.equal(new Set(same.map(({ json }) => json.id)).size, 1);
  const others = await Promise.all(Array.from({ length: 30 }, (_, n) => ask(`${n}`, { request_id: 'contested' })));
  t.equal(others.filter(({ status }) => status === 201).length, 1);
  t.equal(others.filter(({ status }) => status === 409).length, 29);
  t.equal((await sessions()).length, 2);
});

t.test('a request id whose item was stopped while it was written answers that item', async (t) => {
  const { database, environment, enqueue: ask, asked, sessions } = await newServer(t);
  const first = await hold(t, database, async (held) => {
    const { item } = await enqueue(held, asked('session', { requestId: 'request' }));
    await stop(held, [{ environmentId: environment.id, id: item.id, force: true, reason: 'operator' }]);
    return item.id;
  });
  const second = ask('session', { request_id: 'request' });
  await first.untilBlocked();
  await first.commit();
  t.match(await second, { status: 200, json: { id: first.answer, state: 'stopped' } });
  t.strictSame(await sessions(), ['session']);
});
