import { sql } from 'kysely';
import t from 'tap';
import type { Database } from '../../src/db/connect.ts';
import { ack } from '../../src/queue/ack.ts';
import { QueueError } from '../../src/queue/errors.ts';
import { heartbeat, NO_HEARTBEAT } from '../../src/queue/heartbeat.ts';
import { DEFAULT_SETTINGS } from '../../src/queue/settings.ts';
import { stop } from '../../src/queue/stop.ts';
import { rowOf, testServer } from '../support/harness.ts';
import { holding, holdRow, replicas, type Stage } from '../support/interleave.ts';

const ITEMS = 6;

const SETS: Record<
  string,
  { stage: Stage; run(database: Database, environmentId: string, ids: readonly string[]): Promise<unknown[]> }
> = {
  ack: {
    stage: 'reserved',
    run: (database, environmentId, ids) =>
      ack(
        database,
        ids.map((id) => ({ environmentId, id })),
        DEFAULT_SETTINGS,
      ),
  },
  heartbeat: {
    stage: 'starting',
    run: (database, environmentId, ids) =>
      heartbeat(
        database,
        ids.map((id) => ({
          environmentId,
          id,
          expectedLastHeartbeat: NO_HEARTBEAT,
          desiredTtlSeconds: 60,
          isRetry: false,
        })),
        DEFAULT_SETTINGS,
      ),
  },
  stop: {
    stage: 'active',
    run: (database, environmentId, ids) =>
      stop(
        database,
        ids.map((id) => ({ environmentId, id, force: true, reason: 'worker' })),
      ),
  },
};

for (const [name, { stage, run }] of Object.entries(SETS)) {
  t.test(
    `two sets of ${name} in opposite orders end without a deadlock, each item answered in its place`,
    async (t) => {
      const server = await testServer(t);
      const { database, environment } = server;
      const [other] = await replicas(t, database, 1);
      const ids: string[] = [];
      for (let n = 0; n < ITEMS; n++) ids.push((await holding(server, `session-${n}`, stage)).id);
      const backwards = [...ids].reverse();
      // Both sets stop at the oldest row. Had one locked in the order asked, it would hold the others by then.
      const row = await holdRow(t, database, ids[0] ?? '');
      const sets = [run(database, environment.id, ids), run(other?.database ?? database, environment.id, backwards)];
      await row.untilBlocked(2);
      const unlocked = await database.rows(
        sql`select from ${database.names.workItems} where id <> ${ids[0]} for update skip locked`,
      );
      t.equal(unlocked.length, ITEMS - 1, 'no row behind the awaited one is locked');
      await row.commit();
      const [forwards = [], reversed = []] = await Promise.all(sets);
      t.equal(forwards.length, ITEMS);
      t.equal(reversed.length, ITEMS);
      const refused = [...forwards, ...reversed].filter((answer) => answer instanceof QueueError);
      t.equal(refused.length, name === 'ack' ? 0 : ITEMS, 'what the first set did, the second found done');
    },
  );
}

for (const [name, { stage }] of Object.entries(SETS)) {
  t.test(`a row that another transaction holds delays its own ${name} only`, async (t) => {
    const server = await testServer(t);
    const { database, queue, environment } = server;
    const items = [];
    for (let n = 0; n < 3; n++) items.push(await holding(server, `session-${n}`, stage));
    const refs = items.map(({ id }) => ({ environmentId: environment.id, id }));
    const before = await Promise.all(refs.map(({ id }) => rowOf(database, id)));
    const row = await holdRow(t, database, refs[1]?.id ?? '');
    const beats = refs.map((ref) => ({ ...ref, expectedLastHeartbeat: NO_HEARTBEAT, isRetry: false }));
    const stops = refs.map((ref) => ({ ...ref, force: true, reason: 'worker' as const }));
    const runs = { ack: () => queue.ack(refs), heartbeat: () => queue.heartbeat(beats), stop: () => queue.stop(stops) };
    const answers = runs[name as keyof typeof runs]();
    await row.untilBlocked(); // the held one alone is waited for, after its neighbours are done
    for (const n of [0, 2]) t.not((await rowOf(database, refs[n]?.id ?? '')).state, before[n]?.state, 'done by now');
    t.same(await rowOf(database, refs[1]?.id ?? ''), before[1]);
    await row.commit();
    t.notOk(
      (await answers).some((answer: unknown) => answer instanceof QueueError),
      'and then the held one',
    );
    t.not((await rowOf(database, refs[1]?.id ?? '')).state, before[1]?.state);
  });
}

t.test('an id that stands twice in a set is served twice, in turn, and answers keep the order asked', async (t) => {
  const server = await testServer(t);
  const { queue, environment } = server;
  const environmentId = environment.id;
  const { id: twice } = await holding(server, 'twice', 'reserved');
  const { id: once } = await holding(server, 'once', 'reserved');
  const ids = [twice, once, twice, 'work_unknown', twice];

  const acked = await queue.ack(ids.map((id) => ({ environmentId, id })));
  t.match(acked, [
    { id: twice, state: 'starting' },
    { id: once, state: 'starting' },
    { id: twice, state: 'starting' },
    { code: 'not_found' },
    { id: twice, state: 'starting' },
  ]);
  t.equal(new Set(acked.map((item) => ('acknowledgedAt' in item ? item.acknowledgedAt : ''))).size, 3, 'acked once');

  const claim = { expectedLastHeartbeat: NO_HEARTBEAT, isRetry: false };
  t.match(await queue.heartbeat(ids.map((id) => ({ environmentId, id, ...claim }))), [
    { state: 'active', leaseExtended: true },
    { state: 'active', leaseExtended: true },
    { code: 'precondition_failed' },
    { code: 'not_found' },
    { code: 'precondition_failed' },
  ]);

  const stops = ids.map((id, n) => ({ environmentId, id, force: n === 2, reason: 'worker' as const }));
  t.match(await queue.stop(stops), [
    { state: 'stopping' },
    { state: 'stopping' },
    { state: 'stopped' },
    { code: 'not_found' },
    { code: 'conflict' },
  ]);
  t.same(await queue.ack([]), [], 'a set of none');
});
