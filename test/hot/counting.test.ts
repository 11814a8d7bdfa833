import { sql } from 'kysely';
import t from 'tap';
import { createEnvironment } from '../../src/control/environments.ts';
import { createQueue } from '../../src/create-queue.ts';
import type { Database } from '../../src/db/connect.ts';
import { STATEMENTS, watch } from '../support/gates.ts';
import { testDatabase, until } from '../support/harness.ts';

/** The same database, every statement through it counted. */
function counted(plain: Database): { database: Database; count(): number } {
  let count = 0;
  const through = (watched: Database): Database => ({
    ...watched,
    rows(statement, transaction) {
      count++;
      return watched.rows(statement, transaction);
    },
  });
  return { database: { ...through(plain), aside: through(plain.aside) }, count: () => count };
}

for (const [what, environments, workers] of [
  ['1,000 idle workers of one environment', 1, 1_000],
  ['500 environments with an idle worker each', 500, 500],
] as const) {
  t.test(`${what} cost a constant few statements a second`, async (t) => {
    const plain = await testDatabase(t);
    const overs = watch(plain, STATEMENTS.lookOver);
    const { database, count } = counted(overs.database);
    const queue = createQueue({ database });
    t.teardown(() => queue.close());
    const ids = await plain.rows(sql<{ id: string }>`
      insert into ${plain.names.environments} (id, name, type)
      select 'env_idle' || n, 'idle ' || n, 'self_hosted' from generate_series(1, ${environments}::integer) n returning id`);
    queue.start();
    await until('it looks over all', () => overs.ended() > 0); // nothing is known of what was empty before
    const all = () =>
      Promise.all(
        Array.from({ length: workers }, (_, n) =>
          queue.poll({ environmentId: ids[n % environments]?.id ?? '', workerId: `${n}`, blockMs: 999 }),
        ),
      );
    await all(); // from now on it is known that there is nothing
    const [before, since] = [count(), performance.now()];
    for (let round = 0; round < 3; round++) t.ok((await all()).every((handOut) => handOut === null));
    const perSecond = ((count() - before) / (performance.now() - since)) * 1_000;
    t.ok(perSecond <= 5, `${perSecond.toFixed(1)} statements a second`);
  });
}

t.test('a thousand polls that wait are served by a few looks, and one item wakes one of them', async (t) => {
  const plain = await testDatabase(t);
  const looks = watch(plain, STATEMENTS.look);
  const queue = createQueue({ database: looks.database });
  t.teardown(() => queue.close());
  const { id: environmentId } = await createEnvironment(plain, { name: 'waiting', type: 'self_hosted' });
  queue.start();
  await until('it listens', () => queue.isListening());
  let session = 0;
  const requests = (count: number) =>
    Array.from({ length: count }, () => ({ environmentId, sessionId: `${session++}` }));
  for (const [items, looksMax] of [
    [1, 2],
    [10, 4],
    [2_000, 30],
  ] as const) {
    const expected = Math.min(items, 1_000);
    let found = 0;
    /** As workers do, who come again: on a busy machine the time of many is up before the items are there. */
    const next = async (workerId: string) => {
      for (;;) {
        const handOut = await queue.poll({ environmentId, workerId, blockMs: 999 });
        if (handOut !== null) found++;
        if (handOut !== null || found >= expected) return handOut;
      }
    };
    const waiting = Array.from({ length: 1_000 }, (_, n) => next(`${n}`));
    await until('they wait', () => looks.begun() === looks.ended());
    const before = looks.begun();
    await queue.enqueueAll(requests(Math.min(items, 1_000)));
    if (items > 1_000) await queue.enqueueAll(requests(items - 1_000));
    const handed = (await Promise.all(waiting)).filter((handOut) => handOut !== null);
    t.equal(handed.length, expected, `${items} items`);
    t.equal(new Set(handed.map(({ item }) => item.id)).size, handed.length, 'each once');
    t.ok(looks.begun() - before <= looksMax, `${looks.begun() - before} looks`);
  }
});
