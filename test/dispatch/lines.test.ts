import { mock } from 'node:test';
import t from 'tap';
import { gatedHandOuts } from '../support/gated-hand-outs.ts';
import { turn } from '../support/gates.ts';

t.test('who takes only what is old stands in a line of its own, looked for by itself', async (t) => {
  const { take, looks } = gatedHandOuts(t);
  take('any', 999);
  take('old', 999, 'env', 60_000);
  take('older', 999, 'env', 90_000);
  take('old, too', 999, 'env', 60_000);
  t.same(
    looks.map(({ minQueuedAgeMs, takers }) => [minQueuedAgeMs, takers]),
    [
      [0, ['any']],
      [60_000, ['old']],
      [90_000, ['older']],
    ],
  );
  await looks[1]?.find('1');
  t.same([looks[3]?.minQueuedAgeMs, looks[3]?.takers], [60_000, ['old, too']], 'those of one age share a line');
});

t.test('a look of one line neither delays nor answers another of the same environment', async (t) => {
  const { take, looks } = gatedHandOuts(t);
  const old = take('old', undefined, 'env', 60_000);
  const any = take('any');
  await looks[1]?.find();
  t.match(any.seen, { settled: true, value: null });
  t.notOk(old.seen.settled);
  await looks[0]?.find('1');
  t.match(old.seen, { settled: true, value: '1' });
});

t.test('a wake-up looks for every line of its environment, and of no other', async (t) => {
  const { handOuts, take, looks } = gatedHandOuts(t);
  for (const [environmentId, age] of [
    ['env', 0],
    ['env', 60_000],
    ['other', 60_000],
  ] as const) {
    take(`${environmentId} ${age}`, 999, environmentId, age);
    await looks.at(-1)?.find();
  }
  handOuts.wake('env');
  t.same(
    looks.slice(3).map(({ takers }) => takers),
    [['env 0'], ['env 60000']],
  );
  for (const look of looks.slice(3)) await look.find();
  handOuts.wake();
  t.same(
    looks.slice(5).map(({ takers }) => takers),
    [['env 0'], ['env 60000'], ['other 60000']],
  );
});

t.test('a line that nobody stands in any more is forgotten, its neighbour stays; a new one can form', async (t) => {
  const { handOuts, take, looks, takers } = gatedHandOuts(t);
  const leaving = take('leaving', 999, 'env', 60_000);
  const staying = take('staying', 999);
  for (const look of looks) await look.find();
  leaving.leave();
  handOuts.wake('env');
  t.same(takers().slice(2), [['staying']]);
  await looks[2]?.find();
  const again = take('again', 999, 'env', 60_000);
  await looks[3]?.find();
  handOuts.wake('env');
  t.same(takers().slice(4), [['staying'], ['again']]);
  await looks[4]?.find('1');
  await looks[5]?.find('2');
  t.same([staying.seen.value, again.seen.value], ['1', '2']);
});

t.test('who comes to a line while its last one is being looked for is looked for after', async (t) => {
  const { take, looks, takers } = gatedHandOuts(t);
  const gone = take('gone', 999, 'env', 60_000);
  gone.leave();
  const next = take('next', undefined, 'env', 60_000);
  t.equal(looks.length, 1, 'one look at a time');
  await looks[0]?.find();
  t.same(takers()[1], ['next']);
  await looks[1]?.find('1');
  t.match(next.seen, { settled: true, value: '1' });
});

t.test('a look that failed is made again in its own line alone', async (t) => {
  const { handOuts, take, looks, takers } = gatedHandOuts(t);
  take('any', 999);
  take('old', 999, 'env', 60_000);
  for (const look of looks) await look.find();
  handOuts.wake('env');
  await looks[2]?.find();
  await looks[3]?.fail();
  mock.timers.tick(100);
  t.same(takers().slice(4), [['old']]);
});

t.test('closing ends the waiting in every line', async (t) => {
  const { handOuts, take, looks } = gatedHandOuts(t);
  const polls = [0, 60_000, 90_000].map((age) => take(`${age}`, 999, 'env', age));
  for (const look of looks) await look.find();
  handOuts.close();
  await turn();
  for (const { seen } of polls) t.match(seen, { settled: true, value: null });
});
