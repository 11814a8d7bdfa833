import t from 'tap';
import { createTurns } from '../../src/dispatch/turns.ts';
import { turn, watchPromise } from '../support/gates.ts';

const gate = () => Promise.withResolvers<string>();

t.test('what has one key runs one after another, in order of arrival; another key does not wait', async (t) => {
  const inTurn = createTurns();
  const began: string[] = [];
  const [first, second] = [gate(), gate()];
  const run = (name: string, ends: Promise<string>) => async () => {
    began.push(name);
    return ends;
  };
  const answers = [
    inTurn('a', run('first', first.promise)),
    inTurn('a', run('second', second.promise)),
    inTurn('b', run('other', Promise.resolve('of b'))),
  ].map(watchPromise);
  await turn();
  t.strictSame(began, ['first', 'other']);
  t.match(answers[2], { settled: true, value: 'of b' });
  first.resolve('1');
  await turn();
  t.strictSame(began, ['first', 'other', 'second']);
  t.match(answers[0], { settled: true, value: '1' });
  t.notOk(answers[1]?.settled);
  second.resolve('2');
  await turn();
  t.match(answers[1], { settled: true, value: '2' });
});

t.test('one that fails fails its own caller, and the next one runs', async (t) => {
  const inTurn = createTurns();
  const failing = watchPromise(inTurn('a', () => Promise.reject(new Error('no'))));
  const next = watchPromise(inTurn('a', async () => 'next'));
  await turn();
  t.match(failing, { settled: true, error: /no/ });
  t.match(next, { settled: true, value: 'next' });
});

t.test('past the bound of one key a call is unavailable, for that key alone and until one has ended', async (t) => {
  const inTurn = createTurns({ waitingMax: 1 });
  const first = gate();
  const waiting = inTurn('a', () => first.promise);
  await t.rejects(
    inTurn('a', async () => ''),
    { code: 'unavailable' },
  );
  t.equal(await inTurn('b', async () => 'of b'), 'of b');
  first.resolve('1');
  t.equal(await waiting, '1');
  t.equal(await inTurn('a', async () => 'again'), 'again');
});
