import { sql } from 'kysely';
import t from 'tap';
import { deleteEnvironment } from '../../src/control/change-environment.ts';
import { createEnvironment } from '../../src/control/environments.ts';
import { acquireLock } from '../../src/locks/acquire.ts';
import type { LockRef } from '../../src/locks/lock.ts';
import { pruneLocks } from '../../src/locks/prune.ts';
import { releaseLock } from '../../src/locks/release.ts';
import { renewLock } from '../../src/locks/renew.ts';
import { createQueue } from '../../src/index.ts';
import { testDatabase } from '../support/harness.ts';
import { hold } from '../support/interleave.ts';
import { expireLock, lockRow } from '../support/locks.ts';

const database = await testDatabase(t);
let places = 0;
const place = async (): Promise<LockRef> => {
  const { id } = await createEnvironment(database, { name: `races ${places++}`, type: 'self_hosted' });
  return { environmentId: id, name: 'call' };
};
const acquire = (ref: LockRef, owner: string, through = database) => acquireLock(through, { ...ref, owner });
const refusal = (asked: Promise<unknown>) => asked.catch((error: unknown) => error);

t.test('of two that take a free lock at once one gets it, the other is told of it', async (t) => {
  const ref = await place();
  const first = await hold(t, database, (held) => acquire(ref, 'one', held));
  const second = refusal(acquire(ref, 'other'));
  await first.untilBlocked();
  await first.commit();
  t.match(await second, { code: 'conflict', details: { locked: true, expires_at: first.answer.expiresAt } });
  t.match(await lockRow(database, ref), { owner: 'one', token: first.answer.token });
});

t.test('who asks while a taking is rolled back gets the lock', async (t) => {
  const ref = await place();
  const first = await hold(t, database, (held) => acquire(ref, 'one', held));
  const second = acquire(ref, 'other');
  await first.untilBlocked();
  await first.rollback();
  t.match(await second, { owner: 'other' });
});

t.test('of two that take over an expired lock at once one gets it', async (t) => {
  const ref = await place();
  const before = await acquire(ref, 'dead');
  await expireLock(database, ref);
  const first = await hold(t, database, (held) => acquire(ref, 'one', held));
  t.ok(first.answer.token > before.token);
  const second = refusal(acquire(ref, 'other'));
  await first.untilBlocked();
  await first.commit();
  t.match(await second, { code: 'conflict', details: { expires_at: first.answer.expiresAt } });
});

t.test('the same owner asking twice at once gets one token', async (t) => {
  const ref = await place();
  const first = await hold(t, database, (held) => acquire(ref, 'one', held));
  const second = acquire(ref, 'one');
  await first.untilBlocked();
  await first.commit();
  t.equal((await second).token, first.answer.token);
});

t.test('who waits for a release gets the lock, under a higher token', async (t) => {
  const ref = await place();
  const { token } = await acquire(ref, 'one');
  const released = await hold(t, database, (held) => releaseLock(held, { ...ref, token }));
  t.equal(released.answer, true);
  const second = acquire(ref, 'other');
  await released.untilBlocked();
  await released.commit();
  t.match(await second, { owner: 'other' });
  t.ok((await second).token > token);
});

t.test(
  'a token is drawn under the lock: whoever holds it later has a higher one, however early it asked',
  async (t) => {
    const ref = await place();
    const holder = await hold(t, database, async (held) => ({ held, first: await acquire(ref, 'one', held) }));
    const late = acquire(ref, 'late');
    await holder.untilBlocked();
    const { held, first } = holder.answer;
    await releaseLock(held, { ...ref, token: first.token });
    const second = await acquire(ref, 'two', held);
    await releaseLock(held, { ...ref, token: second.token });
    await holder.commit();
    t.ok((await late).token > second.token);
  },
);

t.test('a renewal and a release of what is being taken over neither wait nor change anything', async (t) => {
  const ref = await place();
  const { token } = await acquire(ref, 'one');
  await expireLock(database, ref);
  const taken = await hold(t, database, (held) => acquire(ref, 'other', held));
  t.match(await refusal(renewLock(database, { ...ref, token })), { details: { error_code: 'lock_lost' } });
  t.equal(await releaseLock(database, { ...ref, token }), false);
  await taken.commit();
  t.match(await lockRow(database, ref), { owner: 'other', token: taken.answer.token });
});

t.test('a renewal that waited for the release of its token is that of a lost lock', async (t) => {
  const ref = await place();
  const { token } = await acquire(ref, 'one');
  const released = await hold(t, database, (held) => releaseLock(held, { ...ref, token }));
  const renewed = refusal(renewLock(database, { ...ref, token }));
  await released.untilBlocked();
  await released.commit();
  t.match(await renewed, { code: 'conflict', details: { error_code: 'lock_lost' } });
  t.match(await acquire(ref, 'other'), { owner: 'other' });
});

t.test('a takeover that waited for a renewal finds the lock held', async (t) => {
  const ref = await place();
  const { token } = await acquire(ref, 'one');
  const renewed = await hold(t, database, (held) => renewLock(held, { ...ref, token }, 300));
  const second = refusal(acquire(ref, 'other'));
  await renewed.untilBlocked();
  await renewed.commit();
  t.match(await second, { code: 'conflict', details: { expires_at: renewed.answer.expiresAt } });
});

t.test('of a release and its repeat at once one is the release', async (t) => {
  const ref = await place();
  const { token } = await acquire(ref, 'one');
  const first = await hold(t, database, (held) => releaseLock(held, { ...ref, token }));
  const second = releaseLock(database, { ...ref, token });
  await first.untilBlocked();
  await first.commit();
  t.strictSame([first.answer, await second], [true, false]);
});

t.test('a lock that is asked for while its environment is being deleted is not found', async (t) => {
  const ref = await place();
  const deleted = await hold(t, database, (held) => deleteEnvironment(held, ref.environmentId));
  const asked = refusal(acquire(ref, 'one'));
  await deleted.untilBlocked();
  await deleted.commit();
  t.match(await asked, { code: 'environment_not_found' });
});

t.test('what expired an hour ago is removed in steps, and nothing else', async (t) => {
  const kept = await place();
  await acquire(kept, 'one');
  await acquire({ ...kept, name: 'a while ago' }, 'one');
  await expireLock(database, { ...kept, name: 'a while ago' }, 3_590);
  const old = await place();
  for (let n = 0; n < 52; n++) {
    await acquire({ ...old, name: `${n}` }, 'one');
    await expireLock(database, { ...old, name: `${n}` }, 3_610);
  }
  // The same name elsewhere, and another name in the same environment.
  await acquire({ ...kept, name: '0' }, 'one');
  await acquire({ ...old, name: 'live' }, 'one');
  const held = await hold(t, database, ({ rows, names }) =>
    rows(sql`select from ${names.locks} where environment_id = ${old.environmentId} and name = '51' for update`),
  );
  t.strictSame(await pruneLocks(database), { pruned: 50, more: true });
  t.strictSame(await pruneLocks(database), { pruned: 1, more: false }, 'not what others hold');
  await held.rollback();
  t.strictSame(await pruneLocks(database), { pruned: 1, more: false });
  const left = await database.rows(sql<{ name: string }>`
    select l.name from ${database.names.locks} l where l.environment_id in (${kept.environmentId}, ${old.environmentId}) order by 1`);
  t.same(
    left.map(({ name }) => name),
    ['0', 'a while ago', 'call', 'live'],
  );
});

t.test('who acquires what is being removed gets it, and who was removed meanwhile stays so', async (t) => {
  const ref = await place();
  const { token } = await acquire(ref, 'one');
  await expireLock(database, ref, 4_000);
  const pruned = await hold(t, database, (held) => pruneLocks(held));
  t.match(pruned.answer, { pruned: 1 });
  const next = acquire(ref, 'other');
  await pruned.untilBlocked();
  await pruned.commit();
  t.ok((await next).token > token);

  await expireLock(database, ref, 4_000);
  const taken = await hold(t, database, (held) => acquire(ref, 'third', held));
  t.strictSame(await pruneLocks(database), { pruned: 0, more: false });
  await taken.commit();
  t.match(await lockRow(database, ref), { owner: 'third' });
});

t.test("the background removes them, too, and a lock's token is never given again", async (t) => {
  const ref = await place();
  const { token } = await acquire(ref, 'one');
  await expireLock(database, ref, 4_000);
  const queue = createQueue({ database });
  t.teardown(() => queue.close());
  await queue.sweep();
  t.equal(await lockRow(database, ref), undefined);
  t.ok((await acquire(ref, 'one')).token > token);
});
