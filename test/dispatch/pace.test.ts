import { mock } from 'node:test';
import t, { type Test } from 'tap';
import { createPace } from '../../src/dispatch/pace.ts';

/** A pace, the instants at which it told, and a time that only passes when the test lets it. */
function paced(t: Test, delayMs: number) {
  mock.timers.enable({ apis: ['setTimeout'] });
  t.teardown(() => mock.timers.reset());
  let nowMs = 0;
  const told: number[] = [];
  const pace = createPace({ tell: () => void told.push(nowMs), delayMs, now: () => nowMs });
  const elapse = (ms: number) => {
    for (let n = 0; n < ms; n++) {
      nowMs++;
      mock.timers.tick(1);
    }
  };
  return { pace, told, elapse };
}

t.test(
  'the first wake-up is told of at once, those that follow closely by one more, and then it is still',
  async (t) => {
    const { pace, told, elapse } = paced(t, 0);
    elapse(500);
    for (let n = 0; n < 100; n++) pace.wake();
    t.strictSame(told, [500]);
    elapse(99);
    t.strictSame(told, [500]);
    elapse(1_000);
    t.strictSame(told, [500, 600]);
    pace.wake();
    t.strictSame(told, [500, 600, 1_599]);
  },
);

t.test('under wake-ups without end it tells ten times a second', async (t) => {
  const { pace, told, elapse } = paced(t, 0);
  for (let n = 0; n < 1_000; n++) {
    pace.wake();
    elapse(1);
  }
  t.ok(told.length >= 9 && told.length <= 10, `${told.length}`);
  elapse(100);
  t.ok((told.at(-1) ?? 0) >= 999, 'also of the last');
});

t.test(
  'with a delay each wake-up is told of that much later, not before, and by a tenth of it late at most',
  async (t) => {
    const { pace, told, elapse } = paced(t, 60_000);
    pace.wake();
    elapse(30_000);
    pace.wake();
    elapse(29_999);
    t.strictSame(told, []);
    elapse(60_000);
    t.strictSame(told, [60_000, 90_000], 'apart: each in its time');
    elapse(1);
    const began = 120_000;
    for (let n = 0; n < 100; n++) {
      pace.wake();
      elapse(200);
    }
    elapse(100_000);
    const [first = 0, ...others] = told.slice(2);
    t.ok(first >= began + 60_000 && first <= began + 66_000, `${first}`);
    t.ok(others.length <= 4, 'together where they came together');
    t.equal(told.at(-1), began + 99 * 200 + 60_000, 'the last in its time');
  },
);

t.test('once closed it tells nothing and keeps no timer', async (t) => {
  for (const delayMs of [0, 5_000]) {
    const { pace, told, elapse } = paced(t, delayMs);
    pace.wake();
    pace.close();
    elapse(20_000);
    t.strictSame(told, []);
    mock.timers.reset();
  }
});
