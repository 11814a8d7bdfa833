import { sql } from 'kysely';
import t, { type Test } from 'tap';
import { createEnvironment } from '../../src/control/environments.ts';
import { createQueue } from '../../src/create-queue.ts';
import { enqueue } from '../../src/queue/enqueue.ts';
import { STATEMENTS, watch } from '../support/gates.ts';
import { testDatabase, until } from '../support/harness.ts';
import { quickest } from '../support/waiting.ts';

/** A window and a second, on a slow machine. */
const IN_TIME_MS = 3_000;

/** A queue with its background, where a poll has found nothing: from now on polls that may wait ask nothing. */
async function idle(t: Test) {
  const plain = await testDatabase(t);
  const looks = watch(plain, STATEMENTS.look);
  const overs = watch(looks.database, STATEMENTS.lookOver);
  const queue = createQueue({ database: overs.database });
  t.teardown(() => queue.close());
  const { id: environmentId } = await createEnvironment(plain, { name: 'idle', type: 'self_hosted' });
  queue.start();
  await until('it looks over all', () => overs.ended() > 0);
  const poll = (blockMs = 999) => queue.poll({ environmentId, workerId: 'worker', blockMs });
  await poll(1);
  /** Polls as a worker does, until there is something; how long that took. */
  const next = async () => {
    const since = performance.now();
    for (;;) {
      const handOut = await poll();
      if (handOut !== null || performance.now() - since > 10 * IN_TIME_MS) {
        return { handOut, ms: performance.now() - since };
      }
    }
  };
  return { plain, queue, environmentId, looks, overs, poll, next };
}

t.test('what no notification told of is found within a second', async (t) => {
  const { plain, queue, environmentId, poll, next } = await idle(t);
  const found = await quickest(IN_TIME_MS, async (n) => {
    t.equal(await poll(1), null); // it is known that there is nothing
    await enqueue(plain, { environmentId, sessionId: `unheard ${n}` }); // and nobody is told
    const { handOut, ms } = await next();
    t.equal(handOut?.item.sessionId, `unheard ${n}`);
    await queue.stop([{ environmentId, id: handOut?.item.id ?? '', force: true, reason: 'operator' }]);
    return ms;
  });
  t.ok(found < IN_TIME_MS, `after ${found.toFixed(0)} ms`);
});

t.test(
  'what lapses is offered again, also where another replica reserved it, and what was for later when it is due',
  async (t) => {
    const { plain, queue, environmentId, poll, next } = await idle(t);
    const other = createQueue({ database: plain });
    t.teardown(() => other.close());
    /** How long it takes until what was done comes out. */
    const offered = async (sessionId: string, act: () => Promise<unknown>) => {
      t.equal(await poll(1), null); // it is known that there is nothing
      await act();
      const { handOut, ms } = await next();
      t.equal(handOut?.item.sessionId, sessionId);
      await queue.stop([{ environmentId, id: handOut?.item.id ?? '', force: true, reason: 'operator' }]);
      return ms;
    };
    const lapsed = await quickest(IN_TIME_MS, (n) =>
      offered(`reserved ${n}`, async () => {
        await enqueue(plain, { environmentId, sessionId: `reserved ${n}` });
        t.equal((await other.poll({ environmentId, reclaimOlderThanMs: 500 }))?.item.sessionId, `reserved ${n}`);
      }),
    );
    t.ok(lapsed < IN_TIME_MS, `after ${lapsed.toFixed(0)} ms`);
    const due = await quickest(IN_TIME_MS, (n) =>
      offered(`later ${n}`, async () => {
        const [row] = await plain.rows(sql<{ soon: string }>`
          select to_char((clock_timestamp() + interval '500 milliseconds') at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as soon`);
        await enqueue(plain, { environmentId, sessionId: `later ${n}`, notBefore: row?.soon ?? '' });
      }),
    );
    t.ok(due < IN_TIME_MS, `after ${due.toFixed(0)} ms`);
  },
);

t.test(
  'a poll that may wait asks nothing of what is known to be empty; where nobody looks over all, it looks',
  async (t) => {
    const { looks, poll } = await idle(t);
    const before = looks.begun();
    for (let n = 0; n < 5; n++) t.equal(await poll(1), null);
    t.equal(looks.begun(), before);

    const database = await testDatabase(t);
    const [unanswered, theirs] = [watch(database, STATEMENTS.lookOver), watch(database, STATEMENTS.look)];
    unanswered.fail(new Error('no answer'));
    const queue = createQueue({
      database: {
        ...theirs.database,
        rows: (...asked) =>
          (STATEMENTS.lookOver.test(asked[0].compile(database.kysely).sql) ? unanswered : theirs).database.rows(
            ...asked,
          ),
      },
    });
    t.teardown(() => queue.close());
    const { id: environmentId } = await createEnvironment(database, { name: 'unwatched', type: 'self_hosted' });
    queue.start();
    await until('it was tried', () => unanswered.begun() > 0);
    for (let n = 1; n <= 3; n++) {
      t.equal(await queue.poll({ environmentId, blockMs: 1 }), null);
      t.equal(theirs.begun(), n);
    }
  },
);
