import { sql } from 'kysely';
import t from 'tap';
import { enqueue } from '../../src/queue/enqueue.ts';
import { testServer } from '../support/harness.ts';
import { hold, replicas } from '../support/interleave.ts';

for (const { end, created } of [
  { end: 'commit', created: false },
  { end: 'rollback', created: true },
] as const) {
  t.test(
    `an enqueue that meets an uncommitted one of its session waits; after its ${end}: created ${created}`,
    async (t) => {
      const { database, queue, environment } = await testServer(t);
      const request = { environmentId: environment.id, sessionId: 'session' };
      const first = await hold(t, database, (held) => enqueue(held, request));
      t.equal(first.answer.created, true);
      const second = queue.enqueue(request);
      await first.untilBlocked();
      await first[end]();
      const answer = await second;
      t.equal(answer.created, created);
      t.equal(answer.item.id === first.answer.item.id, !created);
      t.equal((await queue.list(environment.id, { limit: 10 })).items.length, 1);
    },
  );
}

t.test('8 enqueues of one session at once: one created, the others covered by it', async (t) => {
  const { database, queue, environment } = await testServer(t);
  const others = await replicas(t, database, 8);
  for (let round = 0; round < 10; round++) {
    const request = { environmentId: environment.id, sessionId: `session-${round}` };
    const answers = await Promise.all(others.map((replica) => replica.queue.enqueue(request)));
    t.equal(answers.filter((answer) => answer.created).length, 1, `round ${round}`);
    t.equal(new Set(answers.map((answer) => answer.item.id)).size, 1);
  }
  t.equal((await queue.stats(environment.id)).depth, 10);
});

t.test('an enqueue that waits for a session whose item is stopped meanwhile puts in a new one', async (t) => {
  const { database, queue, environment } = await testServer(t);
  const request = { environmentId: environment.id, sessionId: 'session' };
  // The slot is taken and freed within one transaction: the loser finds neither.
  const first = await hold(t, database, async (held) => {
    const { item } = await enqueue(held, request);
    await held.rows(
      sql`update ${held.names.workItems} set state = 'stopped', stopped_at = now() where id = ${item.id}`,
    );
    return item.id;
  });
  const second = queue.enqueue(request);
  await first.untilBlocked();
  await first.commit();
  const { created, item } = await second;
  t.equal(created, true);
  t.not(item.id, first.answer);
});
