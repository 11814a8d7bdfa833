import { sql } from 'kysely';
import t from 'tap';
import { createQueue } from '../../src/create-queue.ts';
import { createHints, type Hint, hintTopic } from '../../src/dispatch/hints.ts';
import { testDatabase, until } from '../support/harness.ts';
import { replicas } from '../support/interleave.ts';

const RELEASED: Hint = { type: 'lock_released', name: 'a name with blanks, "quotes" and \u{1F511}' };

t.test(
  'a hint is told to those who listen for its environment, here and on another replica, until they leave',
  async (t) => {
    const database = await testDatabase(t, 'postgres');
    const [here, there] = await replicas(t, database, 2);
    if (here === undefined || there === undefined) throw new Error('no replicas');
    for (const { queue } of [here, there]) queue.start();
    await until('both listen', () => here.queue.isListening() && there.queue.isListening());
    const told = { here: [] as Hint[], there: [] as Hint[], elsewhere: [] as Hint[] };
    here.queue.onHint('environment', (hint) => told.here.push(hint));
    const leave = there.queue.onHint('environment', (hint) => told.there.push(hint));
    there.queue.onHint('neighbour', (hint) => told.elsewhere.push(hint));
    here.queue.hint('environment', RELEASED);
    t.same(told.here, [RELEASED], 'at once');
    await until('the other replica heard of it', () => told.there.length > 0);
    leave();
    here.queue.hint('environment', { type: 'environment_paused' });
    here.queue.hint('neighbour', { type: 'stop_requested', workId: 'work_1' });
    await until('the neighbour heard of its own', () => told.elsewhere.length > 0);
    t.same(told, {
      here: [RELEASED, { type: 'environment_paused' }],
      there: [RELEASED],
      elsewhere: [{ type: 'stop_requested', workId: 'work_1' }],
    });
  },
);

t.test('a notification that is no hint harms nobody', async (t) => {
  const database = await testDatabase(t, 'postgres');
  const queue = createQueue({ database });
  t.teardown(() => queue.close());
  queue.start();
  await until('it listens', () => queue.isListening());
  const told: Hint[] = [];
  queue.onHint('environment', (hint) => told.push(hint));
  const good = (hint: unknown) => `hint:${Buffer.from(JSON.stringify(['environment', hint])).toString('base64url')} x`;
  for (const payload of ['hint: x', 'hint:%% x', `hint:${Buffer.from('null').toString('base64url')} x`, good(RELEASED)])
    await database.rows(sql`select pg_notify(${database.channel}, ${payload})`);
  await until('what came after was heard', () => told.length > 0);
  t.same(told, [RELEASED]);
});

for (const [what, tell, hint] of [
  ['a hint', (hints) => hints.tell(hintTopic('environment', RELEASED)), RELEASED],
  ['that some were missed', (hints) => hints.tellMissed(), { type: 'hints_missed' }],
] as const satisfies readonly [string, (hints: ReturnType<typeof createHints>) => void, Hint][]) {
  t.test(`who is told ${what} may leave, take others along, and come back: each is told once`, async (t) => {
    const hints = createHints();
    const told: [string, Hint][] = [];
    const LISTENS_MAX = 10;
    const listenOnce = (name: string, listens = 1) => {
      const leave = hints.listen('environment', (given) => {
        told.push([name, given]);
        leave();
        if (name === 'first') leaveWithFirst();
        if (listens < LISTENS_MAX) listenOnce(name, listens + 1);
      });
      return leave;
    };
    listenOnce('first');
    listenOnce('second');
    const leaveWithFirst = hints.listen('environment', (given) => told.push(['taken along', given]));
    tell(hints);
    t.same(told, [
      ['first', hint],
      ['second', hint],
    ]);
    tell(hints);
    t.equal(told.length, 4, 'and once more the next time');
  });
}
