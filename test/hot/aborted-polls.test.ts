import { sql } from 'kysely';
import t from 'tap';
import { createEnvironment } from '../../src/control/environments.ts';
import { createQueue } from '../../src/create-queue.ts';
import { testDatabase } from '../support/harness.ts';

const ITEMS = 10_000;
const POLLERS = 64;

t.test('half of all polls cut at random while 10,000 items drain: none is lost, none has two holders', async (t) => {
  const database = await testDatabase(t);
  const queue = createQueue({ database, settings: { reclaimOlderThanMs: 600_000 } });
  t.teardown(() => queue.close());
  const { workItems } = database.names;
  const { id: environmentId } = await createEnvironment(database, { name: 'aborted', type: 'self_hosted' });
  for (let n = 0; n < ITEMS; n += 1_000) {
    await queue.enqueueAll(Array.from({ length: 1_000 }, (_, m) => ({ environmentId, sessionId: `${n + m}` })));
  }
  const holders = new Map<string, number>();
  let [cut, twice] = [0, 0];
  await Promise.all(
    Array.from({ length: POLLERS }, async (_, worker) => {
      for (;;) {
        const client = new AbortController();
        const isCut = Math.random() < 0.5;
        const polling = queue.poll({ environmentId, workerId: `${worker}`, signal: client.signal });
        if (isCut) {
          for (let turns = Math.floor(Math.random() * 8); turns > 0; turns--) await new Promise(setImmediate);
          client.abort();
          cut++;
        }
        const handOut = await polling;
        if (handOut === null && isCut) continue;
        if (handOut === null) return;
        const { sessionId, id } = handOut.item;
        if (holders.has(sessionId)) twice++;
        holders.set(sessionId, worker);
        await queue.ackOne({ environmentId, id });
        await queue.stopOne({ environmentId, id, force: true, reason: 'worker' });
      }
    }),
  );
  t.equal(twice, 0);
  const rows = await database.rows(sql<{ state: string; count: number }>`
    select state, count(*)::integer as count from ${workItems} where environment_id = ${environmentId} group by state`);
  t.ok(cut > 1_000, `${cut} polls were cut`);
  // Who was cut last may have left some that are put back: whoever comes next gets them.
  let rest = 0;
  for (let next = await queue.poll({ environmentId }); next !== null; next = await queue.poll({ environmentId })) {
    if (holders.has(next.item.sessionId)) twice++;
    holders.set(next.item.sessionId, -1);
    rest++;
  }
  t.equal(holders.size, ITEMS, `all were handed out, ${rest} of them at the end; ${JSON.stringify(rows)}`);
  t.equal(twice, 0);
});
