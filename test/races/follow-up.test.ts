import t, { type Test } from 'tap';
import type { Database } from '../../src/db/connect.ts';
import { enqueue } from '../../src/queue/enqueue.ts';
import { poll } from '../../src/queue/poll.ts';
import { DEFAULT_SETTINGS } from '../../src/queue/settings.ts';
import { stop } from '../../src/queue/stop.ts';
import { sweep } from '../../src/queue/sweep.ts';
import { desk, stored } from '../support/desk.ts';
import { lapse, rowOf, testServer } from '../support/harness.ts';
import { beat, hold, holding, type Stage } from '../support/interleave.ts';

async function newServer(t: Test, stage: Stage = 'active') {
  const server = await testServer(t, { settings: { maxHandOuts: 1 } });
  const held = await holding(server, 'session', stage);
  const ref = { environmentId: server.environment.id, id: held.id };
  return {
    ...{ ...server, ...desk(server, ref.environmentId), server, ref },
    followed: { environmentId: ref.environmentId, sessionId: 'session', followUp: true, input: 'next' },
    items: () => stored(server.database, ref.environmentId),
  };
}

for (const end of ['commit', 'rollback'] as const) {
  for (const force of [false, true]) {
    const stopped = force ? 'stopped' : 'stopping';
    t.test(`a follow-up that waits for a stop (force ${force}) of what covers it; ${end}`, async (t) => {
      const { database, enqueue: ask, ref, items } = await newServer(t);
      const ended = await hold(t, database, (held) => stop(held, [{ ...ref, force, reason: 'worker' }]));
      const covered = await ask('session', { request_id: 'no follow-up' });
      t.match(covered, { status: 200, json: { id: ref.id, state: 'active' } }, 'without follow_up nobody waits');
      const next = ask('session', { follow_up: true, input: 'next' });
      await ended.untilBlocked();
      await ended[end]();
      const { status, json } = await next;
      if (end === 'commit') {
        t.equal(status, 201, 'there is nothing left to follow');
        t.match(await items(), [
          { id: ref.id, state: stopped },
          { id: json.id, state: 'queued', input: '"next"' },
        ]);
        t.match(await rowOf(database, ref.id), { follow_up: null }, 'what has ended does not change');
      } else {
        t.match([status, json.id], [200, ref.id]);
        t.match(await items(), [{ state: 'active' }]);
        t.match(await rowOf(database, ref.id), { follow_up: { input: '"next"' } });
      }
      t.match((await ask('session', { request_id: 'no follow-up' })).json, { id: ref.id });
    });

    t.test(`a stop (force ${force}) that waits for a follow-up; ${end}`, async (t) => {
      const { database, call, work, ref, followed, items } = await newServer(t);
      const asked = await hold(t, database, (held) => enqueue(held, followed));
      const ended = call('POST', work(`/${ref.id}/stop`), { body: { force } });
      await asked.untilBlocked();
      await asked[end]();
      t.equal((await ended).status, 204);
      const first = { id: ref.id, state: stopped };
      const all = await items();
      t.match(all, end === 'commit' ? [first, { state: 'queued', input: '"next"' }] : [first]);
      t.equal(all.length, end === 'commit' ? 2 : 1);
    });
  }

  t.test(`two follow-ups of one item at once: the first stands; ${end}`, async (t) => {
    const { database, enqueue: ask, ref, followed } = await newServer(t);
    const first = await hold(t, database, (held) => enqueue(held, followed));
    const second = ask('session', { follow_up: true, input: 'second' });
    await first.untilBlocked();
    await first[end]();
    t.equal((await second).status, 200);
    t.match(await rowOf(database, ref.id), { follow_up: { input: end === 'commit' ? '"next"' : '"second"' } });
  });
}

const taker = { workerId: null, reclaimOlderThanMs: null };
const SETTING_ASIDE: Record<string, (database: Database, environmentId: string) => Promise<{ setAside: number }>> = {
  poll: (database, id) => poll(database, id, [taker], { ...DEFAULT_SETTINGS, maxHandOuts: 1, minQueuedAgeMs: 0 }),
  sweep: (database) => sweep(database, { maxHandOuts: 1 }),
};
for (const [name, setAside] of Object.entries(SETTING_ASIDE)) {
  t.test(`a follow-up that waits for a ${name} that sets the item aside is a new item`, async (t) => {
    const { database, enqueue: ask, ref, items } = await newServer(t, 'starting');
    await lapse(database, ref.id, 9);
    const ended = await hold(t, database, (held) => setAside(held, ref.environmentId));
    t.equal(ended.answer.setAside, 1);
    const next = ask('session', { follow_up: true });
    await ended.untilBlocked();
    await ended.commit();
    t.equal((await next).status, 201);
    t.match(await items(), [{ reason: 'exhausted' }, { state: 'queued' }]);
  });

  t.test(`a ${name} passes over an item whose follow-up is being written, and sets it aside afterwards`, async (t) => {
    const { database, ref, followed, items } = await newServer(t, 'starting');
    await lapse(database, ref.id, 9);
    const asked = await hold(t, database, (held) => enqueue(held, followed));
    t.equal((await setAside(database, ref.environmentId)).setAside, 0);
    await asked.commit();
    t.equal((await setAside(database, ref.environmentId)).setAside, 1);
    t.match(await items(), [{ reason: 'exhausted' }, { state: 'queued', input: '"next"' }]);
  });
}

t.test("a holder does not wait for a caller's transaction whose request its item covers", async (t) => {
  const { server, database, call, work, ref, enqueue: ask } = await newServer(t, 'reserved');
  const request = { environmentId: ref.environmentId, sessionId: 'session', requestId: 'request' };
  const asked = await hold(t, database, (held) => enqueue(held, request));
  t.equal((await call('POST', work(`/${ref.id}/ack`))).status, 200);
  t.match((await beat(server, ref.id)).json, { lease_extended: true });
  t.equal((await call('POST', work(`/${ref.id}/stop`), { body: { force: true } })).status, 204);
  await asked.commit();
  t.match(await ask('session', { request_id: 'request' }), { status: 200, json: { id: ref.id, state: 'stopped' } });
});
