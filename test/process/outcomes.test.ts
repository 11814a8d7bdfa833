import { sql } from 'kysely';
import t from 'tap';
import { changeSettings } from '../../src/control/settings.ts';
import { history } from '../../src/queue/history.ts';
import { DEFAULT_SETTINGS } from '../../src/queue/settings.ts';
import { LAPSED, newLane } from '../support/claims.ts';

const lane = await newLane(t, { settings: { maxAttempts: 3 } });
const { database, queue, cloud, selfHosted, enqueue, mustClaim, held, row, set } = lane;
t.beforeEach(() => lane.empty());

const configure = (environmentId: string, change: object) =>
  changeSettings(database, environmentId, change, DEFAULT_SETTINGS);

t.test('what its claimant says of an item is told as of one on the wire', async (t) => {
  const done = await held();
  await queue.complete(done.lease);
  const failed = await held();
  await queue.fail(failed.lease, 'no use', { isFinal: true });
  for (const [{ id }, outcome, reason] of [
    [done, 'succeeded', 'worker'],
    [failed, 'failed', 'failed'],
  ] as const) {
    t.match(await row(id), { state: 'stopped', outcome, stop_reason: reason });
    const { work, handOuts } = await history(database, { environmentId: cloud, id });
    t.match([work, handOuts], [{ outcome, hasResult: false, stopReason: reason }, [{ outcome }]]);
  }
});

t.test('nothing is said of an item that goes on, or that was cancelled and given back', async (t) => {
  const again = await held();
  await queue.fail(again.lease, 'once');
  const back = await held();
  await queue.requeue(back.lease);
  for (const { id } of [again, back]) t.match(await row(id), { state: 'queued', outcome: null });
  const cancelled = await held();
  await queue.requestCancel({ environmentId: cloud, id: cancelled.id });
  await queue.requeue(cancelled.lease);
  t.match(await row(cancelled.id), { state: 'stopped', stop_reason: 'cancelled', outcome: null });
});

t.test('how often an item may fail is its own to say, else its environment’s, else the process’s', async (t) => {
  await configure(selfHosted, { maxAttempts: 1 });
  for (const [own, environment, expected] of [
    [1, 2, 1],
    [2, 1, 2],
    [undefined, 1, 1],
    [undefined, null, 3],
  ] as const) {
    await configure(cloud, { maxAttempts: environment });
    const id = await enqueue(own === undefined ? {} : { maxAttempts: own });
    for (let n = 1; n <= expected; n++) {
      await set(id, sql`next_attempt_at = null`);
      const { lease, maxAttempts, attempt } = await mustClaim();
      t.same([attempt, maxAttempts], [n, expected], `${own} ${environment}`);
      t.match(await queue.fail(lease, 'again'), { state: n === expected ? 'stopped' : 'queued' });
    }
  }
});

for (const [what, lapses] of [
  ['was given back or failed by workers', false],
  ['lapsed', true],
] as const) {
  t.test(
    `a hand-out that ${what} is ${lapses ? '' : 'not '}one of those that a dead claimant’s item is set aside for`,
    async (t) => {
      await configure(selfHosted, { fallbackAfterMs: 1, maxHandOuts: 2 });
      const environmentId = selfHosted;
      await enqueue({ environmentId, kind: 'tool_exec' });
      for (const end of lapses ? ['lapse'] : ['release', 'fail']) {
        const handOut = await queue.poll({ environmentId });
        if (handOut === null) throw new Error('nothing was handed out');
        if (end === 'release') await queue.release(handOut);
        if (end === 'fail') await queue.reportOutcome(handOut, { status: 'failed' });
        if (end === 'lapse') await set(handOut.item.id, LAPSED);
        const [waiting] = await lane.all();
        await set(String(waiting?.id), sql`not_before = null, created_at = clock_timestamp() - interval '1 minute'`);
      }
      const { id } = await mustClaim('tool_exec');
      await set(id, LAPSED);
      await queue.sweep();
      t.match(await row(id), lapses ? { state: 'stopped', stop_reason: 'exhausted' } : { state: 'active' });
    },
  );
}
