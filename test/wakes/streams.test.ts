import t from 'tap';
import { turn } from '../support/gates.ts';
import { fakeWakes } from '../support/fake-wakes.ts';

const WORK = '{"type":"work_available"}';

t.test('a reader is told at once that there may be work, then of what happens in its environment alone', async (t) => {
  const { attach, wake, hint, elapse } = fakeWakes(t);
  const [reader, neighbour] = [attach('e'), attach('other')];
  t.strictSame(reader.told(), [WORK]);
  await elapse(1_000);
  wake('e');
  hint('e', { type: 'stop_requested', workId: 'work_1' });
  hint('e', { type: 'lock_released', name: 'a "name"\n' });
  hint('e', { type: 'environment_paused' });
  hint('e', { type: 'environment_resumed' });
  t.strictSame(reader.told(), [
    WORK,
    WORK,
    '{"type":"stop_requested","work_id":"work_1"}',
    '{"type":"lock_released","name":"a \\"name\\"\\n"}',
    '{"type":"environment_paused"}',
    '{"type":"environment_resumed"}',
  ]);
  t.strictSame(neighbour.told(), [WORK]);
  const named = reader.sink.frames.filter(([type]) => type !== '?');
  for (const [type, data] of named) t.equal(JSON.parse(data).type, type);
});

t.test('when word from other replicas may have been lost, all are told to look', async (t) => {
  const { attach, wake, tellMissed, elapse } = fakeWakes(t);
  const readers = [attach('e'), attach('other')];
  await elapse(1_000);
  wake();
  tellMissed();
  for (const { told } of readers) t.strictSame(told(), [WORK, WORK, '{"type":"hints_missed"}']);
});

t.test('what no version of ours has told is passed over', async (t) => {
  const { attach, hint } = fakeWakes(t);
  const { told } = attach();
  hint('e', { type: 'of_later' } as never);
  t.strictSame(told(), [WORK]);
});

t.test('a reader of a key with a least age is told of work that much later; of the rest at once', async (t) => {
  const { attach, wake, hint, elapse } = fakeWakes(t);
  const reader = attach('e', 5_000);
  await elapse(1_000);
  wake('e');
  hint('e', { type: 'environment_paused' });
  t.strictSame(reader.told(), [WORK, '{"type":"environment_paused"}']);
  await elapse(4_999, 100);
  t.equal(reader.told().length, 2);
  await elapse(1, 1);
  t.strictSame(reader.told().slice(2), [WORK]);
});

t.test('comments go out every 15 s, spread over the readers', async (t) => {
  const { attach, elapse } = fakeWakes(t, { streamsMax: 30 });
  const readers = Array.from({ length: 30 }, () => attach());
  for (let second = 1; second <= 15; second++) {
    await elapse(1_000);
    t.equal(readers.filter(({ pings }) => pings() === 1).length, 2 * second);
  }
  await elapse(15_000);
  for (const { pings } of readers) t.equal(pings(), 2);
});

t.test('a reader of whom more than 64 KiB are still to go is cut, its neighbours are not', async (t) => {
  const { attach, hint, streams } = fakeWakes(t);
  const [slow, other] = [attach(), attach()];
  slow.sink.behind = 65_536;
  hint('e', { type: 'environment_paused' });
  t.notOk(slow.sink.isCut);
  slow.sink.behind = 65_537;
  hint('e', { type: 'environment_resumed' });
  slow.sink.behind = 65_536;
  await turn();
  t.notOk(slow.sink.isCut, 'it went with the turn');
  slow.sink.behind = 65_537;
  hint('e', { type: 'environment_resumed' });
  await turn();
  t.ok(slow.sink.isCut);
  t.equal(streams.size(), 1);
  hint('e', { type: 'environment_paused' });
  t.equal(other.told().length, 5);
});

t.test('a reader that takes nothing for 30 s is cut, one that takes all in between is not', async (t) => {
  const { attach, elapse, streams } = fakeWakes(t);
  const [slow, other] = [attach(), attach()];
  slow.sink.behind = 1;
  other.sink.behind = 1;
  await elapse(20_000);
  other.sink.behind = 0;
  await elapse(1_000);
  other.sink.behind = 1;
  await elapse(9_000);
  t.notOk(slow.sink.isCut, 'behind for less than 30 s since it was noticed');
  await elapse(1_000);
  t.ok(slow.sink.isCut);
  t.notOk(other.sink.isCut);
  t.equal(streams.size(), 1);
});

t.test(
  'a stream ends with the next comment once its credential is no good, and not while that is unknown',
  async (t) => {
    const { attach, elapse, streams } = fakeWakes(t);
    const [revoked, unknown] = [attach(), attach()];
    revoked.sink.allowed = false;
    unknown.sink.allowed = new Error('no database');
    await elapse(15_000);
    t.ok(revoked.sink.isEnded);
    t.notOk(unknown.sink.isEnded);
    t.equal(streams.size(), 1);
  },
);

t.test('streams of an environment that is deleted end, others go on', async (t) => {
  const { attach, hint, streams } = fakeWakes(t);
  const [first, second, other] = [attach('e'), attach('e'), attach('other')];
  hint('e', { type: 'environment_deleted' });
  t.ok(first.sink.isEnded && second.sink.isEnded);
  t.notOk(other.sink.isEnded);
  t.equal(streams.size(), 1);
});

t.test('who leaves, ends or is cut leaves neither a listener nor a timer behind', async (t) => {
  const { attach, wake, hint, elapse, listening, streams } = fakeWakes(t);
  const [left, cut, ended] = [attach('e', 1_000), attach('e', 1_000), attach('e', 1_000)];
  wake('e');
  left.detach();
  left.detach();
  cut.sink.behind = 100_000;
  hint('e', { type: 'environment_paused' });
  await turn();
  t.ok(cut.sink.isCut);
  streams.close();
  t.ok(ended.sink.isEnded);
  t.equal(listening(), 0);
  t.equal(streams.size(), 0);
  const frames = () => [left, cut, ended].map(({ sink }) => sink.frames.length);
  const before = frames();
  wake('e');
  await elapse(60_000);
  t.strictSame(frames(), before);
});

t.test('no more are open than the bound, and none once it is closed', async (t) => {
  const { attach, streams, listening } = fakeWakes(t, { streamsMax: 2 });
  const [first] = [attach(), attach()];
  t.throws(() => attach(), { code: 'unavailable' });
  t.equal(listening(), 4, 'who was refused has left nothing');
  first?.detach();
  attach();
  streams.close();
  t.throws(() => attach(), { code: 'unavailable' });
});
