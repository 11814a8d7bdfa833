import t from 'tap';
import { createEnvironment } from '../src/control/environments.ts';
import { createQueue } from '../src/create-queue.ts';
import { testDatabase } from './support/harness.ts';

t.test('what has come due is claimed by its priority, however many of a lower one were due before', async (t) => {
  const database = await testDatabase(t);
  const queue = createQueue({ database });
  t.teardown(() => queue.close());
  const { id: environmentId } = await createEnvironment(database, { name: 'C', type: 'cloud' });
  const enqueue = (sessionId: string, priority: number, notBefore?: string) =>
    queue.enqueue({
      ...{ environmentId, sessionId, kind: 'model_turn', priority },
      ...(notBefore === undefined ? {} : { notBefore }),
    });
  const claim = async () => (await queue.claim('model_turn', { ttlSeconds: 60 }))?.sessionId;

  // As many as a claim reads of what is due.
  for (let n = 0; n < 16; n++) await enqueue(`low ${n}`, -1, '2020-01-01T00:00:00Z');
  await enqueue('high', 1, '2020-01-02T00:00:00Z');
  await enqueue('plain', 0);
  await queue.sweep();
  t.equal((await queue.nextEligible('model_turn'))?.sessionId, 'high');
  t.same([await claim(), await claim(), await claim()], ['high', 'plain', 'low 0']);
});
