import t from 'tap';
import { createSlots } from '../../src/dispatch/slots.ts';
import { turn } from '../support/gates.ts';

t.test('so many run at a time, the rest in order of their asking, and a free slot is taken at once', async (t) => {
  const inTurn = createSlots(2);
  const began: number[] = [];
  const gates = Array.from({ length: 5 }, () => Promise.withResolvers<number>());
  const ask = (n: number) =>
    inTurn(() => {
      began.push(n);
      return gates[n]?.promise ?? Promise.resolve(n);
    });
  const asked = [ask(0), ask(1), ask(2)];
  t.strictSame(began, [0, 1], 'at once');
  gates[0]?.resolve(0);
  // Who comes in the moment that a slot is handed on does not get in between.
  asked.push(gates[0]?.promise.then(() => ask(3)) ?? ask(3), ask(4));
  await turn();
  t.strictSame(began, [0, 1, 2]);
  for (const n of [1, 2]) gates[n]?.resolve(n);
  await turn();
  t.strictSame(began, [0, 1, 2, 4, 3], 'no more than two at a time');
  for (const n of [3, 4]) gates[n]?.resolve(n);
  t.strictSame(await Promise.all(asked), [0, 1, 2, 3, 4]);
});

t.test('one that fails gives its slot on', async (t) => {
  const inTurn = createSlots(1);
  await t.rejects(
    inTurn(() => Promise.reject(new Error('no'))),
    { message: 'no' },
  );
  t.equal(await inTurn(async () => 'next'), 'next');
});
