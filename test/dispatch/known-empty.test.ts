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
  take('again', 999).leave();
  t.equal(looks.length, 3, 'a line that had work is kept, but is not known to be empty');
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

t.test('what is held is read again when it may have lapsed, at the latest after the shortest lease', async (t) => {
  let nowMs = 0;
  const { take, looks, handOuts } = gatedHandOuts(t, { isWatched: () => true, now: () => nowMs });
  take('first');
  t.equal(looks[0]?.isDeep, true, 'nothing is known yet');
  await looks[0]?.findBefore(400);
  const deepAt = async (ms: number, lapsesInMs: number, ...items: string[]) => {
    nowMs = ms;
    take('next');
    const look = looks.at(-1);
    await look?.findBefore(lapsesInMs, ...items);
    return look?.isDeep;
  };
  t.equal(await deepAt(399, 0), false, 'and a look that is not deep tells nothing of it');
  t.equal(await deepAt(400, 60_000), true);
  t.equal(await deepAt(1_399, 0), false);
  t.equal(await deepAt(1_400, 60_000, 'found'), true);
  t.equal(await deepAt(1_401, 60_000), true, 'where all that was asked for was found, there may be more');
  t.equal(await deepAt(1_402, 0), false);
  handOuts.wakeLine({ environmentId: 'env', minQueuedAgeMs: 0 });
  t.equal(await deepAt(1_403, 60_000), true, 'who looked over all has found something');
});

t.test('what is held is read by each look where nobody looks over all', async (t) => {
  const { take, looks } = gatedHandOuts(t);
  for (let n = 0; n < 3; n++) {
    take('poll');
    await looks[n]?.findBefore(60_000);
  }
  t.strictSame(
    looks.map(({ isDeep }) => isDeep),
    [true, true, true],
  );
});

t.test('a look that set something aside may not have seen all that lapsed', async (t) => {
  const { take, looks } = gatedHandOuts(t, { isWatched: () => true, now: () => 0 });
  take('poll');
  await looks[0]?.setAside(1);
  t.equal(looks[1]?.isDeep, true);
});
