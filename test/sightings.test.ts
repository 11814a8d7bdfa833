import t from 'tap';
import { createSightings } from '../src/dispatch/sightings.ts';

t.test('a flush waits for what an earlier one is still writing, so that stats always counts it', async (t) => {
  const writes: { workers: string[]; done: () => void }[] = [];
  const sightings = createSightings({
    record: (seen) =>
      new Promise((done) => {
        writes.push({ workers: seen.map(({ workerId }) => workerId), done });
      }),
  });
  const order: string[] = [];
  sightings.note('env_1', 'worker-1');
  const first = sightings.flush().then(() => order.push('first flush'));
  const idle = sightings.flush().then(() => order.push('a flush of nothing new'));
  sightings.note('env_2', 'worker-2');
  const second = sightings.flush().then(() => order.push('second flush'));
  t.strictSame(
    writes.map(({ workers }) => workers),
    [['worker-1'], ['worker-2']],
  );
  writes[1]?.done();
  await new Promise(setImmediate);
  t.strictSame(order, [], 'the first write is still under way');
  order.push('first write');
  writes[0]?.done();
  await Promise.all([first, idle, second]);
  t.equal(order[0], 'first write');
  t.equal(order.length, 4);
});
