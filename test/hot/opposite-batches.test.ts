import t, { type Test } from 'tap';
import { createEnvironment } from '../../src/control/environments.ts';
import { createQueue } from '../../src/create-queue.ts';
import { openDatabase } from '../../src/db/connect.ts';
import { databaseUrl, testDatabase } from '../support/harness.ts';

const ROUNDS = 2_000;
const ITEMS = 12;

/** Two queues, each on a pool of its own, and an environment. */
async function twoReplicas(t: Test) {
  const database = await testDatabase(t);
  const other = await openDatabase({ connectionString: databaseUrl(), schema: database.schema });
  const [here, there] = [createQueue({ database }), createQueue({ database: other })];
  t.teardown(async () => {
    await Promise.all([here.close(), there.close()]);
    await other.close();
  });
  const { id: environmentId } = await createEnvironment(database, { name: 'crosswise', type: 'self_hosted' });
  return { here, there, environmentId };
}

t.test(
  'two replicas batch the same ids in opposite order for 2,000 rounds: no deadlock, and none is left out',
  async (t) => {
    const { here, there, environmentId } = await twoReplicas(t);
    await here.enqueueAll(Array.from({ length: ITEMS }, (_, n) => ({ environmentId, sessionId: `${n}` })));
    const handOuts = await Promise.all(Array.from({ length: ITEMS }, () => here.poll({ environmentId })));
    const refs = handOuts.map((handOut) => ({ environmentId, id: handOut?.item.id ?? '' }));
    await Promise.all(refs.map((ref) => here.ackOne(ref)));
    let tokens = await Promise.all(
      refs.map(async (ref) => {
        const beat = await here.heartbeatOne({ ...ref, expectedLastHeartbeat: 'NO_HEARTBEAT', isRetry: false });
        return beat.lastHeartbeat ?? '';
      }),
    );
    const backwards = refs.map((_, n) => ITEMS - 1 - n);
    let [extended, refused] = [0, 0];
    for (let round = 0; round < ROUNDS; round++) {
      const beat = (queue: typeof here) => async (n: number) => {
        const expectedLastHeartbeat = tokens[n] ?? '';
        const ref = refs[n] ?? { environmentId, id: '' };
        return queue
          .heartbeatOne({ ...ref, expectedLastHeartbeat, isRetry: false })
          .catch((error: { code: string }) => {
            if (error.code !== 'precondition_failed') throw error;
            return null;
          });
      };
      const [ours, theirs] = await Promise.all([
        Promise.all(refs.map((_, n) => beat(here)(n))),
        Promise.all(backwards.map((n) => beat(there)(n))),
      ]);
      tokens = tokens.map((token, n) => {
        const won = [ours[n], theirs[ITEMS - 1 - n]].filter((one) => one !== null && one !== undefined);
        extended += won.length;
        refused += 2 - won.length;
        return won[0]?.lastHeartbeat ?? token;
      });
    }
    t.equal(extended, ROUNDS * ITEMS, 'of each pair one extends');
    t.equal(refused, ROUNDS * ITEMS, 'and one is refused');
  },
);

const ENQUEUE_ROUNDS = 400;

t.test('two replicas enqueue the same work in opposite order: each item once, both are told the same', async (t) => {
  const { here, there, environmentId } = await twoReplicas(t);
  let [created, differing] = [0, 0];
  for (let round = 0; round < ENQUEUE_ROUNDS; round++) {
    const ask = (queue: typeof here) => (n: number) =>
      queue.enqueue({
        ...{ environmentId, sessionId: `${round} ${n}` },
        ...(n % 2 === 0 ? { requestId: `${round} ${ITEMS - n}` } : {}),
      });
    const forwards = Array.from({ length: ITEMS }, (_, n) => n);
    const [ours, theirs] = await Promise.all([
      Promise.all(forwards.map(ask(here))),
      Promise.all(forwards.toReversed().map(ask(there))),
    ]);
    created += [...ours, ...theirs].filter((enqueued) => enqueued.created).length;
    differing += ours.filter(({ item }, n) => item.id !== theirs[ITEMS - 1 - n]?.item.id).length;
  }
  t.equal(created, ENQUEUE_ROUNDS * ITEMS);
  t.equal(differing, 0);
});
