import t from 'tap';
import { DatabaseUnavailable, isDeadlock } from '../../src/db/failures.ts';
import { type BatchOptions, createBatches } from '../../src/dispatch/batches.ts';
import { QueueError } from '../../src/queue/errors.ts';
import { HELD, type Locking } from '../../src/queue/sets.ts';
import { turn, watchPromise } from '../support/gates.ts';

type Outcome = string | QueueError | typeof HELD;
type Statement = {
  readonly set: readonly string[];
  readonly locking: Locking;
  answer(outcomes: Readonly<Record<string, Outcome>>): Promise<void>;
  fail(error: Error): Promise<void>;
};

/** Batches whose statements the test answers: what is not said is answered by its own name. */
function gatedBatches(options: Partial<BatchOptions<string, string>> = {}) {
  const statements: Statement[] = [];
  const call = createBatches<string, string>({
    run: (set, locking) =>
      new Promise((resolve, reject) => {
        statements.push({
          set,
          locking,
          async answer(outcomes) {
            resolve(set.map((name) => outcomes[name] ?? `${name} done`));
            await turn();
          },
          async fail(error) {
            reject(error);
            await turn();
          },
        });
      }),
    keyOf: (name) => name.split(' ')[0] ?? '',
    isDeadlock,
    ...options,
  });
  const ask = (...names: string[]) => names.map((name) => watchPromise(call(name)));
  return { statements, ask, call };
}
const deadlock = () => new DatabaseUnavailable(Object.assign(new Error('deadlock detected'), { code: '40P01' }));

t.test('what arrives in one turn shares a statement, at once', async (t) => {
  const { statements, ask } = gatedBatches();
  const asked = ask('a', 'b', 'c');
  await turn();
  t.strictSame(
    statements.map(({ set, locking }) => [set, locking]),
    [[['a', 'b', 'c'], 'skip']],
  );
  await statements[0]?.answer({ b: new QueueError('conflict', 'no') });
  t.match(asked, [{ value: 'a done' }, { error: { code: 'conflict' } }, { value: 'c done' }]);
});

t.test('what arrives while statements run is the next batch, of a bounded size, in order', async (t) => {
  const { statements, ask } = gatedBatches({ inFlightMax: 1, sizeMax: 2 });
  ask('a');
  await turn();
  const late = ask('b', 'c', 'd');
  await turn();
  t.equal(statements.length, 1, 'no more than may be in flight');
  await statements[0]?.answer({});
  await turn();
  t.strictSame(statements[1]?.set, ['b', 'c']);
  await statements[1]?.answer({});
  await turn();
  t.strictSame(statements[2]?.set, ['d']);
  await statements[2]?.answer({});
  t.match(late, [{ value: 'b done' }, { value: 'c done' }, { value: 'd done' }]);
});

t.test('the same id stands in a statement once, and the second call has one after it', async (t) => {
  const { statements, ask } = gatedBatches({ inFlightMax: 1 });
  const asked = ask('a first', 'b', 'a second');
  await turn();
  t.strictSame(statements[0]?.set, ['a first', 'b']);
  await statements[0]?.answer({});
  await turn();
  t.strictSame(statements[1]?.set, ['a second']);
  await statements[1]?.answer({});
  t.match(asked, [{ value: 'a first done' }, { value: 'b done' }, { value: 'a second done' }]);
});

t.test('a row that somebody holds is waited for by its own call alone', async (t) => {
  const { statements, ask } = gatedBatches({ inFlightMax: 1 });
  const [held, other] = ask('held', 'other');
  await turn();
  await statements[0]?.answer({ held: HELD });
  t.match(other, { settled: true, value: 'other done' });
  t.strictSame([statements[1]?.set, statements[1]?.locking], [['held'], 'wait']);
  const [next] = ask('next');
  await turn();
  await statements[2]?.answer({});
  t.match(next, { settled: true, value: 'next done' }, 'and holds up no batch');
  t.notOk(held?.settled);
  await statements[1]?.answer({});
  t.match(held, { settled: true, value: 'held done' });
});

t.test('only a few wait for held rows at a time', async (t) => {
  const { statements, ask } = gatedBatches();
  const names = ['a', 'b', 'c', 'd', 'e', 'f'];
  const asked = ask(...names);
  await turn();
  await statements[0]?.answer(Object.fromEntries(names.map((name) => [name, HELD])));
  t.equal(statements.length - 1, 3);
  for (let n = 1; n <= names.length; n++) await statements[n]?.answer({});
  t.match(
    asked,
    names.map((name) => ({ value: `${name} done` })),
  );
});

t.test('a statement that fails is tried again call by call, so that a bad one fails alone', async (t) => {
  const { statements, ask } = gatedBatches();
  const [good, bad] = ask('good', 'bad');
  await turn();
  await statements[0]?.fail(new Error('no such thing'));
  t.strictSame(
    statements.slice(1).map(({ set }) => set),
    [['good'], ['bad']],
  );
  await statements[1]?.answer({});
  await statements[2]?.fail(new Error('no such thing'));
  t.match(good, { value: 'good done' });
  t.match(bad, { error: /no such thing/ });
});

t.test('a lost database fails all of them, at once and once', async (t) => {
  const { statements, ask } = gatedBatches();
  const asked = ask('a', 'b');
  await turn();
  await statements[0]?.fail(new DatabaseUnavailable(new Error('gone')));
  t.match(asked, [{ error: { code: 'unavailable' } }, { error: { code: 'unavailable' } }]);
  t.equal(statements.length, 1);
});

t.test('a deadlock is tried again inside, a few times', async (t) => {
  const { statements, ask } = gatedBatches();
  const asked = ask('a', 'b');
  await turn();
  await statements[0]?.fail(deadlock());
  t.strictSame(statements[1]?.set, ['a', 'b']);
  await statements[1]?.answer({});
  t.match(asked, [{ value: 'a done' }, { value: 'b done' }]);
  const unlucky = ask('c');
  await turn();
  for (let n = 2; n <= 5; n++) await statements[n]?.fail(deadlock());
  t.match(unlucky, [{ error: { code: 'unavailable' } }]);
  t.equal(statements.length, 6);
});

t.test('past the bound of what waits a call is unavailable, and what waits is still served', async (t) => {
  const { statements, ask } = gatedBatches({ waitingMax: 2 });
  const asked = ask('a', 'b', 'c');
  await turn();
  t.match(asked[2], { error: { code: 'unavailable' } });
  await statements[0]?.answer({});
  t.match(asked, [{ value: 'a done' }, { value: 'b done' }, {}]);
});

t.test('a set is bounded by what its calls weigh, and nobody overtakes a heavy one', async (t) => {
  const { statements, ask } = gatedBatches({ weightOf: (name) => (name.startsWith('heavy') ? 300_000 : 1) });
  ask('light', 'heavy1', 'heavy2', 'later');
  await turn();
  await statements[0]?.answer({});
  t.strictSame(
    statements.map(({ set }) => set),
    [
      ['light', 'heavy1'],
      ['heavy2', 'later'],
    ],
  );
});

t.test('a call that weighs more than a set may is one of its own', async (t) => {
  const { statements, ask } = gatedBatches({ weightOf: () => 600_000 });
  ask('a', 'b');
  await turn();
  await statements[0]?.answer({});
  t.strictSame(
    statements.map(({ set }) => set),
    [['a'], ['b']],
  );
});
