import { mock } from 'node:test';
import t from 'tap';
import { gatedHandOuts } from '../support/gated-hand-outs.ts';
import { turn } from '../support/gates.ts';

t.test(
  'where somebody looks over all, a poll that may wait asks nothing of a line that is known to be empty',
  async (t) => {
    const { take, looks, handOuts } = gatedHandOuts(t, { isWatched: () => true });
    take('first', 999);
    await looks[0]?.find();
    const idle = take('idle', 500);
    await turn();
    t.equal(looks.length, 1, 'no look for it');
    mock.timers.tick(499);
    t.notOk(idle.seen.settled);
    mock.timers.tick(1);
    await turn();
    t.match(idle.seen, { settled: true, value: null }, 'null when its time is up, not before');

    const woken = take('woken', 999);
    handOuts.wake('env');
    await looks[1]?.find('1', '2');
    t.match(woken.seen, { settled: true, value: '2' });
  },
);

t.test('a poll that does not wait is looked for all the same', async (t) => {
  const { take, looks } = gatedHandOuts(t, { isWatched: () => true });
  take('first', 999);
  await looks[0]?.find();
  const poll = take('drains');
  t.equal(looks.length, 2);
  await looks[1]?.find();
  t.match(poll.seen, { settled: true, value: null });
});

t.test('where nobody looks over all, each poll is looked for', async (t) => {
  const { take, looks } = gatedHandOuts(t, { isWatched: () => false });
  take('first', 999);
  await looks[0]?.find();
  take('second', 999);
  t.equal(looks.length, 2);
});

t.test('a line is known to be empty for a while after its last poll, until it is woken', async (t) => {
  let nowMs = 0;
  const { take, looks, handOuts } = gatedHandOuts(t, { isWatched: () => true, now: () => nowMs });
  const gone = take('gone', 999);
  await looks[0]?.find();
  gone.leave();
  nowMs = 4_000;
  t.equal(handOuts.lines().length, 1, 'it is looked over meanwhile');
  const back = take('back', 999);
  t.equal(looks.length, 1, 'who comes back costs nothing');
  back.leave();
  handOuts.wakeLine({ environmentId: 'env', minQueuedAgeMs: 0 });
  t.equal(looks.length, 1, 'nobody is there to be looked for');
  take('late', 999);
  t.equal(looks.length, 2, 'the next one is');
  await looks[1]?.find('1');
  t.equal(handOuts.lines().length, 0, 'a line that is not empty is not kept');

  take('again', 999).leave();
  await looks[2]?.find();
  nowMs += 9_999;
  t.equal(handOuts.lines().length, 1);
  nowMs += 2;
  t.equal(handOuts.lines().length, 0, 'it is forgotten after ten seconds');
});

t.test('what was enqueued while a look found nothing is not taken for known', async (t) => {
  const { take, looks, handOuts } = gatedHandOuts(t, { isWatched: () => true });
  const poll = take('poll', 999);
  handOuts.wake('env'); // after the look read, before it answered
  await looks[0]?.find();
  t.equal(looks.length, 2);
  await looks[1]?.find('1');
  t.match(poll.seen, { settled: true, value: '1' });
});

t.test('environments take turns: a few looks at a time, in order of their asking', async (t) => {
  const { take, looks } = gatedHandOuts(t);
  const names = Array.from({ length: 10 }, (_, n) => `env ${n}`);
  const polls = names.map((name) => take(name, undefined, name));
  t.equal(looks.length, 6);
  for (let n = 0; n < names.length; n++) await looks[n]?.find(`${n}`);
  t.strictSame(
    looks.map(({ environmentId }) => environmentId),
    names,
  );
  t.strictSame(
    polls.map(({ seen }) => seen.value),
    names.map((_, n) => `${n}`),
  );
});

t.test('a look is for few where little was found, and for more as long as all of them find something', async (t) => {
  const { take, looks } = gatedHandOuts(t);
  take('first');
  for (let n = 0; n < 40; n++) take(`${n}`);
  const all = (count: number) => Array.from({ length: count }, (_, n) => `${n}`);
  await looks[0]?.find('a');
  await looks[1]?.find(...all(16));
  await looks[2]?.find(...all(24));
  t.strictSame(
    looks.map(({ takers }) => takers.length),
    [1, 16, 24],
  );
});

t.test(
  'past the bound of what waits a poll is unavailable, and its place is free again when another ends',
  async (t) => {
    const { take, looks } = gatedHandOuts(t, { waitersMax: 1 });
    const first = take('first', 999);
    const second = take('second', 999);
    await turn();
    t.match(second.seen, { settled: true, error: { code: 'unavailable' } });
    await looks[0]?.find('1');
    t.match(first.seen, { settled: true, value: '1' });
    const third = take('third', 999);
    await looks[1]?.find('2');
    t.match(third.seen, { settled: true, value: '2' });
  },
);

t.test('a line where a look found all that it was for is not known to be empty', async (t) => {
  const { take, looks } = gatedHandOuts(t, { isWatched: () => true });
  take('first', 999).leave();
  await looks[0]?.find();
  const once = take('once');
  await looks[1]?.find('1');
  t.match(once.seen, { settled: true, value: '1' });
  take('next', 999);
  t.equal(looks.length, 3, 'there may be more');
});
