import { sql } from 'kysely';
import t from 'tap';
import type { CallerTransaction } from '../../src/db/connect.ts';
import type { Claimed } from '../../src/process/claim.ts';
import { LAPSED, newLane } from '../support/claims.ts';
import { testClient, until } from '../support/harness.ts';

const lane = await newLane(t);
const { database, queue, cloud, selfHosted, claim, mustClaim, held, row, set } = lane;
t.beforeEach(() => lane.empty());

/** A claim that ends an item takes what follows it. */
let inPassing: Claimed | null = null;

const ENDS: Readonly<Record<string, (item: Claimed) => Promise<unknown>>> = {
  complete: ({ lease }) => queue.complete(lease),
  'fail for good': ({ lease }) => queue.fail(lease, 'x', { isFinal: true }),
  'requestCancel and requeue': async (item) => {
    await queue.requestCancel(item);
    await queue.requeue(item.lease);
  },
  'requestCancel, given back before': async (item) => {
    await queue.requeue(item.lease);
    await queue.requestCancel(item);
  },
  'a claim that finds it cancelled': async (item) => {
    await queue.requestCancel(item);
    await set(item.id, LAPSED);
    inPassing = await claim(item.kind);
  },
  'a reclaim that finds it spent': async ({ id, kind }) => {
    await set(id, sql`${LAPSED}, max_hand_outs = 1`);
    for (const lease of await queue.expired([kind])) await queue.reclaim(lease, { ttlSeconds: 60 });
  },
  'the sweep that finds it spent': async ({ id }) => {
    await set(id, sql`${LAPSED}, max_hand_outs = 1`);
    await queue.sweep();
  },
};
for (const [name, end] of Object.entries(ENDS)) {
  t.test(`its follow-up comes when an item ends by ${name}, in the lane that its session's is`, async (t) => {
    for (const [environmentId, kind] of [
      [cloud, 'tool_exec'],
      [selfHosted, 'mcp_exec'],
    ] as const) {
      const item = await held({ environmentId, kind });
      const followUp = { followUp: true, input: { n: 2 }, maxAttempts: 3, notBefore: '2020-01-01T00:00:00Z' } as const;
      await queue.enqueue({ environmentId, sessionId: item.sessionId, kind, ...followUp });
      let woken = 0;
      const stopListening = queue.onWork([kind], () => woken++);
      await end(item);
      stopListening();
      t.match(await row(item.id), { state: 'stopped' });
      const next = inPassing ?? (await mustClaim(kind));
      inPassing = null;
      t.match(next, { input: { n: 2 }, maxAttempts: 3, sessionId: item.sessionId, attempt: 1, isReclaimed: false });
      t.ok(woken > 0, 'who waits for the kind is woken');
      await lane.empty();
    }
  });
}

t.test('what is given back and fails in vain is announced to who waits for its kind alone', async (t) => {
  const heard: string[] = [];
  const stops = (['model_turn', 'mcp_exec'] as const).map((kind) => queue.onWork([kind], () => heard.push(kind)));
  const item = await held();
  heard.length = 0;
  await queue.requeue(item.lease);
  t.strictSame(heard, ['model_turn']);
  const again = await mustClaim();
  await queue.fail(again.lease, 'x', { isFinal: true });
  t.strictSame(heard, ['model_turn'], 'what is set aside is no work');
  for (const stop of stops) stop();
});

const ACTS: Readonly<Record<string, (item: Claimed, transaction: CallerTransaction) => Promise<unknown>>> = {
  requeue: ({ lease }, tx) => queue.requeue(lease, tx),
  fail: ({ lease }, tx) => queue.fail(lease, 'x', {}, tx),
  'complete, with a follow-up': ({ lease }, tx) => queue.complete(lease, {}, tx),
  'requestCancel of a queued item, with a follow-up': async (item, tx) => {
    await queue.requeue(item.lease);
    await queue.requestCancel(item, tx);
  },
  enqueue: (_, tx) => queue.enqueue({ environmentId: cloud, sessionId: 'another', kind: 'model_turn' }, tx),
};
for (const [name, act] of Object.entries(ACTS)) {
  t.test(`${name} in a transaction notifies by its commit, and of nothing by its rollback`, async (t) => {
    const [listener, client] = [await testClient(t), await testClient(t)];
    const heard: (string | undefined)[] = [];
    listener.on('notification', ({ payload }) => heard.push(payload));
    await listener.query(`listen "${database.channel}"`);
    for (const end of ['rollback', 'commit']) {
      await lane.empty();
      const item = await held();
      const { environmentId, sessionId, kind } = item;
      if (/follow-up/.test(name)) await queue.enqueue({ environmentId, sessionId, kind, followUp: true });
      await client.query('begin');
      await act(item, client);
      // What was told outside the transaction, by the queue itself, names its sender.
      heard.length = 0;
      await client.query(end);
      const mark = `end ${end}`;
      await client.query('select pg_notify($1, $2)', [database.channel, mark]);
      await until('the notifications', () => heard.includes(mark));
      t.strictSame(
        heard.filter((payload) => payload === 'kind:model_turn'),
        end === 'commit' ? ['kind:model_turn'] : [],
        end,
      );
    }
  });
}
