import t from 'tap';
import type { Claimed, Lease, Renewal } from '../../src/index.ts';
import { until } from '../support/harness.ts';
import { EAGER, gettingOn, NEVER, processLane, startRunner } from '../support/runners.ts';

const BY = { ttlSeconds: 60, workerId: 'holder' };
const away = (): Renewal => ({ outcome: 'deferred', error: new Error('no answer') });

t.test('a renewal whose answer was lost does not lose the lease: work goes on and is settled', async (t) => {
  const { queue, enqueue, untilStopped, written, write, row } = await processLane(t);
  const retried: (boolean | undefined)[] = [];
  const store = {
    ...queue,
    /** Every other answer gets lost. */
    async renew(...given: Parameters<typeof queue.renew>) {
      const renewal = await queue.renew(...given);
      return retried.push(given[2]?.isRetry) % 2 === 1 ? away() : renewal;
    },
  };
  const id = await enqueue('session');
  const { logged } = startRunner(t, {
    store,
    ...EAGER,
    handlers: {
      model_turn: (item: Claimed, { signal, tx, progress }) =>
        gettingOn(progress, async () => {
          await until('three renewals', () => retried.length >= 3 || signal.aborted);
          signal.throwIfAborted();
          await tx((transaction) => write(transaction, item, 'in between'));
          await until('another', () => retried.length >= 5 || signal.aborted);
          return (transaction) => write(transaction, item);
        }),
    },
    ...NEVER,
  });
  await untilStopped(id);
  t.strictSame(retried.slice(0, 4), [false, true, false, true]);
  t.match(await row(id), { attempt: 1, hand_over_count: 0 });
  t.strictSame(await written(), ['session done', 'session in between']);
  t.strictSame(logged, []);
});

t.test('only the holder of that very hand-out may say so', async (t) => {
  const { queue, enqueue, row } = await processLane(t);
  const id = await enqueue('session');
  const claimed = await queue.claim('model_turn', BY);
  if (claimed === null) return t.fail('not claimed');
  const { lease } = claimed;
  const { lease: second } = await queue.extend(lease, 60);
  const later = { ...second, expiresAt: second.expiresAt.replace(/^\d{4}/, (year) => `${Number(year) + 1}`) };
  const before = await row(id);
  const retry = (tried: Lease) => queue.renew(tried, 60, { isRetry: true });
  const refused: [what: string, tried: Lease][] = [
    ['another worker', { ...lease, workerId: 'other' }],
    ['another hand-out', { ...lease, handOut: lease.handOut + 1 }],
    ['an instant that the lease has not reached', later],
  ];
  for (const [what, tried] of refused) t.match(await retry(tried), { outcome: 'lost' }, what);
  t.match(await queue.renew(lease, 60), { outcome: 'lost' }, 'and an old proof alone is worth nothing');
  t.strictSame(await row(id), before);

  const renewal = await retry(lease);
  t.match(renewal, { outcome: 'renewed' }, 'an old proof that may have been renewed');
  if (renewal.outcome !== 'renewed') return;
  await queue.requeue(renewal.lease);
  t.match(await retry(renewal.lease), { outcome: 'lost' }, 'given back');
  const again = await queue.claim('model_turn', BY);
  t.match(again, { id });
  t.match(await retry(renewal.lease), { outcome: 'lost' }, 'claimed again, by the same worker');
  if (again !== null) await queue.complete(again.lease);
  if (again !== null) t.match(await retry(again.lease), { outcome: 'lost' }, 'ended');
});
