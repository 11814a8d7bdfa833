import { mock } from 'node:test';
import t from 'tap';
import { gatedHandOuts } from '../support/gated-hand-outs.ts';
import { turn } from '../support/gates.ts';

t.test('a poll that does not wait is answered null only by a look that began after it came', async (t) => {
  const { take, looks, takers } = gatedHandOuts(t);
  const first = take('first');
  const late = [take('late'), take('later')];
  await looks[0]?.find();
  t.match(first.seen, { settled: true, value: null });
  for (const { seen } of late) t.notOk(seen.settled, 'the look that was under way does not count');
  t.same(takers(), [['first'], ['late', 'later']], 'they share the next one');
  await looks[1]?.find();
  for (const { seen } of late) t.match(seen, { settled: true, value: null });
});

t.test('a line longer than a look is served by several, in order', async (t) => {
  const { take, looks, takers } = gatedHandOuts(t, { takersPerLookMax: 2 });
  const polls = [take('a')];
  polls.push(...['b', 'c', 'd', 'e'].map((name) => take(name)));
  await looks[0]?.find('1');
  await looks[1]?.find('2', '3');
  await looks[2]?.find('4');
  t.same(takers(), [['a'], ['b', 'c'], ['d', 'e']]);
  t.same(
    polls.map(({ seen }) => seen.value),
    ['1', '2', '3', '4', null],
  );
});

t.test('a look that finds too little for its takers has been made for all who were in line', async (t) => {
  const { take, looks } = gatedHandOuts(t, { takersPerLookMax: 2 });
  take('first');
  const polls = ['a', 'b', 'c'].map((name) => take(name));
  await looks[0]?.find();
  await looks[1]?.find('1');
  t.same(
    polls.map(({ seen }) => seen),
    [{ settled: true, value: '1' }, ...[1, 2].map(() => ({ settled: true, value: null }))],
  );
  t.equal(looks.length, 2);
});

t.test('a look that fails fails whom nobody has looked for; the others wait on and get what comes', async (t) => {
  const { handOuts, take, looks } = gatedHandOuts(t);
  const waiting = take('waiting', 999);
  await looks[0]?.find();
  const fresh = take('fresh');
  t.equal(looks.length, 2);
  const late = take('late');
  await looks[1]?.fail();
  t.match(fresh.seen, { settled: true, error: /the database is gone/ });
  // The look that failed began with the first of them; those who came after it began have a look of their own.
  for (const { seen } of [waiting, late]) t.notOk(seen.settled);
  await looks[2]?.find();
  t.match(late.seen, { settled: true, value: null });
  t.notOk(waiting.seen.settled);
  handOuts.wake('env');
  await looks[3]?.find('1');
  t.match(waiting.seen, { settled: true, value: '1' });
});

t.test('what woke a look that failed is looked for again, while anybody waits', async (t) => {
  const { handOuts, take, looks } = gatedHandOuts(t);
  const waiting = take('waiting', 999);
  await looks[0]?.find();
  handOuts.wake('env');
  await looks[1]?.fail();
  t.equal(looks.length, 2, 'not at once');
  mock.timers.tick(100);
  await looks[2]?.find('1');
  t.match(waiting.seen, { settled: true, value: '1' });
  const gone = take('gone', 999);
  await looks[3]?.find();
  handOuts.wake('env');
  gone.leave();
  await looks[4]?.fail();
  mock.timers.tick(1_000);
  t.equal(looks.length, 5, 'for nobody there is no look');
});

t.test('a poll that would wait fails when the first look for it fails', async (t) => {
  const { take, looks } = gatedHandOuts(t);
  const poll = take('poll', 999);
  await looks[0]?.fail();
  t.match(poll.seen, { settled: true, error: /the database is gone/ });
});

t.test('a poll whose time is up during a look gets what the look finds', async (t) => {
  for (const found of [['1'], []]) {
    const { handOuts, take, looks } = gatedHandOuts(t);
    const poll = take('poll', 500);
    await looks[0]?.find();
    handOuts.wake('env');
    mock.timers.tick(500);
    await turn();
    t.notOk(poll.seen.settled, 'not before the look ends');
    await looks[1]?.find(...found);
    t.match(poll.seen, { settled: true, value: found[0] ?? null });
    mock.timers.reset();
  }
});

t.test('a poll whose time is up before anybody looked for it is still looked for', async (t) => {
  const { take, looks } = gatedHandOuts(t);
  take('first');
  const poll = take('poll', 1);
  mock.timers.tick(1);
  await looks[0]?.find();
  t.notOk(poll.seen.settled);
  await looks[1]?.find();
  t.match(poll.seen, { settled: true, value: null });
});

t.test('a poll that waits is answered null when its time is up, not a moment before', async (t) => {
  const { take, looks } = gatedHandOuts(t);
  const poll = take('poll', 500);
  await looks[0]?.find();
  mock.timers.tick(499);
  await turn();
  t.notOk(poll.seen.settled);
  mock.timers.tick(1);
  await turn();
  t.match(poll.seen, { settled: true, value: null });
});

t.test('a wake-up looks for those who wait, there only, and costs nothing where nobody does', async (t) => {
  const { handOuts, take, looks } = gatedHandOuts(t);
  for (const environmentId of ['one', 'two']) {
    take(environmentId, 999, environmentId);
    await looks.at(-1)?.find();
  }
  handOuts.wake('nobody');
  handOuts.wake('two');
  t.same(
    looks.slice(2).map((look) => look.environmentId),
    ['two'],
  );
  await looks[2]?.find();
  handOuts.wake();
  t.same(
    looks.slice(3).map((look) => look.environmentId),
    ['one', 'two'],
  );
});

t.test('a wake-up during a look makes another', async (t) => {
  const { handOuts, take, looks } = gatedHandOuts(t);
  const poll = take('poll', 999);
  handOuts.wake('env');
  await looks[0]?.find();
  t.equal(looks.length, 2);
  await looks[1]?.find('1');
  t.match(poll.seen, { settled: true, value: '1' });
});

t.test('whoever goes away while waiting is not looked for any more', async (t) => {
  const { handOuts, take, looks, takers, back } = gatedHandOuts(t);
  const gone = take('gone', 999);
  await looks[0]?.find();
  const next = take('next', 999);
  await looks[1]?.find();
  gone.leave();
  handOuts.wake('env');
  await looks[2]?.find('1');
  t.same(takers()[2], ['next']);
  t.match(next.seen, { settled: true, value: '1' });
  t.same(back, []);
});

t.test('whoever has gone before it is in line is not looked for', async (t) => {
  const { handOuts, looks } = gatedHandOuts(t);
  const request = {
    environmentId: 'env',
    workerId: null,
    blockMs: undefined,
    reclaimOlderThanMs: 5_000,
    minQueuedAgeMs: 0,
  };
  t.equal(await handOuts.take({ ...request, signal: AbortSignal.abort() }), null);
  t.equal(looks.length, 0);
});

for (const blockMs of [undefined, 999]) {
  t.test(`an item found for whoever went away is offered to the next in line (block_ms ${blockMs})`, async (t) => {
    const { take, looks, takers, back } = gatedHandOuts(t);
    take('first', blockMs);
    const [gone, next] = [take('gone', blockMs), take('next', blockMs)];
    await looks[0]?.find('0');
    gone.leave();
    await looks[1]?.find('1');
    t.same(back, ['1'], 'it is put back first');
    t.same(takers()[2], ['next']);
    t.notOk(next.seen.settled, 'nobody is told that there was nothing');
    await looks[2]?.find('1');
    t.match(next.seen, { settled: true, value: '1' });
  });
}

t.test('a put-back that hangs or fails keeps nobody from what was found for them', async (t) => {
  const { promise, reject } = Promise.withResolvers<void>();
  const { take, looks } = gatedHandOuts(t, { putBack: () => promise });
  take('first');
  const [gone, served, waiting] = [take('gone'), take('served'), take('waiting')];
  await looks[0]?.find();
  gone.leave();
  await looks[1]?.find('1', '2');
  t.match(served.seen, { settled: true, value: '2' });
  reject(new Error('the database is gone'));
  await turn();
  await looks[2]?.find();
  t.match(waiting.seen, { settled: true, value: null });
});

t.test('closing answers null to all who wait, and still looks for those who do not', async (t) => {
  const { handOuts, take, looks } = gatedHandOuts(t);
  const waiting = take('waiting', 999);
  await looks[0]?.find();
  const inLook = take('in a look', 999);
  const fresh = take('fresh', 999);
  handOuts.close();
  await turn();
  t.notOk(inLook.seen.settled);
  await looks[1]?.find('1');
  await looks[2]?.find();
  t.same([waiting, inLook, fresh].map(({ seen }) => seen.value).sort(), ['1', null, null]);

  const before = looks.length;
  const late = take('late', 999);
  await turn();
  t.match(late.seen, { settled: true, value: null });
  t.equal(looks.length, before, 'nobody waits any more');
  const drain = take('does not wait');
  await looks[before]?.find('2');
  t.match(drain.seen, { settled: true, value: '2' });
});

t.test('a look that set something aside is not the last word, for whoever it found nothing for', async (t) => {
  for (const blockMs of [undefined, 999]) {
    const { take, looks, takers } = gatedHandOuts(t);
    const poll = take('poll', blockMs);
    await looks[0]?.setAside(1);
    await looks[1]?.setAside(1);
    t.notOk(poll.seen.settled);
    await looks[2]?.find('1');
    t.match(poll.seen, { settled: true, value: '1' });
    t.same(takers(), [['poll'], ['poll'], ['poll']]);
    mock.timers.reset();
  }
});

t.test('whom it found something for has it; the next look is for the others, and may find nothing', async (t) => {
  const { take, looks, takers } = gatedHandOuts(t);
  take('first');
  const [a, b] = [take('a'), take('b')];
  await looks[0]?.find();
  await looks[1]?.setAside(1, '1');
  t.match(a.seen, { settled: true, value: '1' });
  t.notOk(b.seen.settled);
  const late = take('late');
  t.same(takers()[2], ['b'], 'who comes during a look has the next one');
  await looks[2]?.find();
  t.match(b.seen, { settled: true, value: null });
  await looks[3]?.find();
  t.match(late.seen, { settled: true, value: null });
  t.equal(looks.length, 4);
});

t.test('what was set aside for the last in line is looked behind for nobody', async (t) => {
  const { take, looks } = gatedHandOuts(t);
  take('first');
  const [gone, served] = [take('gone', 999), take('served', 999)];
  await looks[0]?.find();
  gone.leave();
  await looks[1]?.setAside(1, '0', '1');
  t.match(served.seen, { settled: true, value: '1' });
  t.equal(looks.length, 2);
});

t.test(
  'a poll whose time is up while items are set aside is answered after the look that sets none aside',
  async (t) => {
    const { take, looks } = gatedHandOuts(t);
    const poll = take('poll', 500);
    await looks[0]?.setAside(1);
    mock.timers.tick(500);
    await turn();
    t.notOk(poll.seen.settled);
    await looks[1]?.find();
    t.match(poll.seen, { settled: true, value: null });
    t.equal(looks.length, 2);
  },
);

t.test(
  'however many are set aside, a poll goes when its time is up; one that is not to wait is looked for to the end',
  async (t) => {
    const { take, looks } = gatedHandOuts(t);
    const [blocking, single] = [take('blocking', 500), take('single')];
    await looks[0]?.find();
    await looks[1]?.setAside(1);
    mock.timers.tick(500);
    await looks[2]?.setAside(1);
    t.match(blocking.seen, { settled: true, value: null });
    t.notOk(single.seen.settled);
    await looks[3]?.find('1');
    t.match(single.seen, { settled: true, value: '1' });
  },
);
