import t from 'tap';
import { CHANGES_MAX, createKnownKeys, type KeyChange } from '../src/control/known-keys.ts';
import { turn, watchPromise } from './support/gates.ts';

/** Known keys on a clock of the test's, their questions answered when the test says so. */
function place() {
  let time = 1_000_000;
  const asked: { answer(changes: readonly KeyChange[]): void; fail(error: Error): void }[] = [];
  const keys = createKnownKeys<string>({
    now: () => time,
    readChanges() {
      const { promise, resolve, reject } = Promise.withResolvers<readonly KeyChange[]>();
      asked.push({ answer: resolve, fail: reject });
      return promise;
    },
  });
  const put = (hash: string, { changedAt = null as string | null, remainingMs = 86_400_000, readAt = time } = {}) =>
    keys.put(hash, { key: `key of ${hash}`, changedAt, remainingMs }, readAt);
  return {
    ...{ keys, asked, put },
    pass: (ms: number) => {
      time += ms;
    },
    now: () => time,
    /** Uses a key, and answers the question that this begins, if it begins one. */
    async use(hash: string, changes: readonly KeyChange[] = []) {
      const before = asked.length;
      const got = keys.get(hash);
      for (let n = before; n < asked.length; n++) asked[n]?.answer(changes);
      return got;
    },
  };
}

t.test(
  'a known key is asked about at most once in 700 ms, in the background, and not while nobody uses it',
  async (t) => {
    const { keys, asked, put, pass, use } = place();
    t.equal(await use('a'), undefined, 'unknown');
    put('a');
    for (let n = 0; n < 100; n++) t.equal(await use('a'), 'key of a');
    t.equal(asked.length, 1);
    pass(701);
    t.equal(await keys.get('a'), 'key of a', 'does not wait for the question that it begins');
    t.equal(asked.length, 2);
    t.equal(await keys.get('a'), 'key of a');
    t.equal(asked.length, 2, 'one at a time');
    asked[1]?.answer([]);
    pass(60_000);
    await turn();
    t.equal(asked.length, 2, 'an idle server asks nothing');
  },
);

t.test('what was read more than 900 ms ago is trusted only after an answer', async (t) => {
  const { keys, asked, put, pass, use } = place();
  await use('a');
  put('a');
  pass(901);
  const waiting = [watchPromise(keys.get('a')), watchPromise(keys.get('a'))];
  await turn();
  t.notOk(
    waiting.some(({ settled }) => settled),
    'both wait',
  );
  t.equal(asked.length, 2, 'for one question');
  asked[1]?.answer([]);
  await turn();
  t.match(waiting, [{ value: 'key of a' }, { value: 'key of a' }]);

  pass(750);
  t.equal(await keys.get('a'), 'key of a');
  pass(1_000);
  const late = watchPromise(keys.get('a'));
  asked[2]?.answer([]);
  await turn();
  t.notOk(late.settled, 'an answer whose question began too long before is not enough');
  t.equal(asked.length, 4);
  asked[3]?.answer([{ hash: 'a', changedAt: 'now' }]);
  await turn();
  t.match(late, { settled: true, value: undefined }, 'what changed is to be looked up');
});

t.test('without an answer a known key is neither trusted nor unknown: it fails', async (t) => {
  const { keys, asked, put, pass, use } = place();
  await use('a');
  put('a');
  pass(701);
  const gone = new Error('the database is gone');
  t.equal(await keys.get('a'), 'key of a');
  asked[1]?.fail(gone);
  await turn();
  pass(150);
  t.equal(await keys.get('a'), 'key of a', 'a failure in the background is not felt yet');
  asked[2]?.fail(gone);
  await turn();
  pass(100);
  const failed = t.rejects(keys.get('a'), gone);
  asked[3]?.fail(gone);
  await failed;
  t.equal(await use('a'), 'key of a', 'and is itself again with the next answer');
});

t.test('a change that is told forgets the key once, not again when it was looked up since', async (t) => {
  const { put, pass, use } = place();
  await use('a');
  for (const hash of ['a', 'b']) put(hash);
  pass(901);
  const change = [{ hash: 'a', changedAt: 'first' }];
  t.equal(await use('a', change), undefined);
  t.equal(await use('b'), 'key of b', 'its neighbour stays');
  put('a', { changedAt: 'first' });
  pass(901);
  t.equal(await use('a', change), 'key of a');
  pass(901);
  t.equal(await use('a', [{ hash: 'a', changedAt: 'second' }]), undefined);
});

t.test('a look-up that was overtaken by a change is not remembered', async (t) => {
  const { put, pass, use, now } = place();
  const readAt = now();
  await use('a', [{ hash: 'a', changedAt: 'meanwhile' }]);
  put('a', { readAt });
  t.equal(await use('a'), undefined);
  put('a', { changedAt: 'meanwhile', readAt });
  pass(1);
  t.equal(await use('a'), 'key of a');
});

t.test('after a silence longer than changes are told for, everything is read anew', async (t) => {
  const { put, pass, use, now } = place();
  await use('a');
  put('a');
  pass(29_000);
  t.equal(await use('a'), 'key of a', 'the changes reach back further');
  pass(30_001);
  const readAt = now() - 1;
  t.equal(await use('a'), undefined);
  put('b', { readAt });
  t.equal(await use('b'), undefined, 'also what a look-up brings that began before');
  put('b');
  t.equal(await use('b'), 'key of b');
});

t.test('more changes than are told at once, and everything is read anew', async (t) => {
  const { put, pass, use } = place();
  await use('a');
  put('a');
  pass(901);
  const others = Array.from({ length: CHANGES_MAX }, (_, n) => ({ hash: `other ${n}`, changedAt: 'now' }));
  t.equal(await use('a', others.slice(1)), 'key of a');
  pass(901);
  t.equal(await use('a', others), undefined);
});

t.test('a key is trusted until it expires, and no longer than ten minutes without being read', async (t) => {
  const { put, pass, use } = place();
  await use('short');
  put('short', { remainingMs: 100 });
  put('long');
  pass(99);
  t.equal(await use('short'), 'key of short');
  pass(1);
  t.equal(await use('short'), undefined);
  for (let minute = 0; minute < 39; minute++) {
    pass(15_000);
    t.equal(await use('long'), 'key of long');
  }
  pass(15_000);
  t.equal(await use('long'), undefined);
});
