import t from 'tap';
import { fakeSink, fakeStreams } from '../support/fake-streams.ts';
import { turn } from '../support/gates.ts';

const range = (from: number, to: number) => Array.from({ length: to - from + 1 }, (_, n) => from + n);
const ofType = (type: string, { frames }: { frames: [string, string][] }) => frames.filter(([name]) => name === type);

t.test('a ping comes every 15 s, and not to all in the same second', async (t) => {
  const { attach, elapse } = fakeStreams(t);
  const sinks = [(await attach()).sink, (await attach()).sink, (await attach()).sink];
  const pings = () => sinks.map((sink) => ofType('ping', sink).length);
  const seconds: number[][] = [];
  for (let second = 0; second < 15; second++) {
    const before = pings();
    await elapse(1);
    seconds.push(pings().map((count, n) => count - (before[n] ?? 0)));
  }
  t.strictSame(pings(), [1, 1, 1]);
  t.ok(
    seconds.every((came) => came.reduce((sum, n) => sum + n) <= 1),
    'one at a time',
  );
  await elapse(30);
  for (const { frames } of sinks) t.strictSame(frames, Array(3).fill(['ping', '{"type":"ping"}']));
});

t.test('what is appended after the head was read comes, and what was before does not', async (t) => {
  const { streams, append, state } = fakeStreams(t);
  await append('s', 2);
  const { promise, resolve } = Promise.withResolvers<void>();
  state.gate = promise;
  const sink = fakeSink();
  const attaching = streams.attach('s', () => sink);
  await append('s', 1); // nobody listens yet
  resolve();
  await attaching;
  await turn();
  t.strictSame(sink.seqs(), [3]);
});

t.test('more than one read holds comes whole and in order', async (t) => {
  const { attach, append, state } = fakeStreams(t, { eventsPerTail: 3 });
  const { sink } = await attach();
  const before = state.tails;
  await append('s', 10);
  t.strictSame(sink.seqs(), range(1, 10));
  t.equal(state.tails - before, 4);
});

t.test('one read serves all readers of a session', async (t) => {
  const { attach, append, state } = fakeStreams(t);
  const readers = [await attach(), await attach(), await attach()];
  const before = state.tails;
  await append('s', 5);
  for (const { sink } of readers) t.strictSame(sink.seqs(), range(1, 5));
  t.equal(state.tails - before, 1);
});

t.test(
  'a reader that is full gets no more than the read that filled it, and the rest once it has drained',
  async (t) => {
    const { attach, append } = fakeStreams(t, { eventsPerTail: 3 });
    const [slow, fast] = [await attach(), await attach()];
    slow.sink.hasRoom = false;
    await append('s', 10);
    t.strictSame(slow.sink.seqs(), range(1, 3));
    t.strictSame(fast.sink.seqs(), range(1, 10), 'others are not held up');
    await append('s', 1);
    t.strictSame(slow.sink.seqs(), range(1, 3));
    slow.attached?.onDrained();
    await turn();
    t.strictSame(slow.sink.seqs(), range(1, 6), 'full again');
    slow.sink.hasRoom = true;
    slow.attached?.onDrained();
    await turn();
    t.strictSame(slow.sink.seqs(), range(1, 11));
    t.strictSame(fast.sink.seqs(), range(1, 11));
  },
);

t.test('nothing is read twice for a reader that is full after every frame', async (t) => {
  const { attach, append, state } = fakeStreams(t, { eventsPerTail: 10 });
  const { sink, attached } = await attach();
  sink.hasRoom = false;
  const before = state.tails;
  await append('s', 100);
  for (let drain = 0; sink.seqs().length < 100 && drain < 200; drain++) {
    attached?.onDrained();
    await turn();
  }
  t.strictSame(sink.seqs(), range(1, 100));
  t.ok(state.tails - before <= 12, `${state.tails - before} reads`);
});

t.test('a reader that reads nothing for two minutes is cut, one that does in time has lost nothing', async (t) => {
  const { attach, append, elapse, streams } = fakeStreams(t, { eventsPerTail: 1 });
  const [stalled, saved, fast] = [await attach(), await attach(), await attach()];
  stalled.sink.hasRoom = false;
  saved.sink.hasRoom = false;
  await append('s', 3);
  await elapse(119);
  t.notOk(stalled.sink.isCut || saved.sink.isCut);
  t.strictSame(stalled.sink.frames.length, 1, 'no pings are piled up');
  saved.sink.hasRoom = true;
  saved.attached?.onDrained();
  await turn();
  await elapse(16);
  t.ok(stalled.sink.isCut);
  t.notOk(stalled.sink.isEnded);
  t.equal(streams.size(), 2);
  await append('s', 1);
  t.strictSame(saved.sink.seqs(), range(1, 4));
  t.strictSame(fast.sink.seqs(), range(1, 4));
  t.strictSame(stalled.sink.seqs(), [1]);
});

t.test('a lost wake-up is made good for within 15 s, and within a second while nothing is heard', async (t) => {
  const { attach, append, elapse, state } = fakeStreams(t);
  const { sink } = await attach();
  await append('s', 1, false);
  await elapse(15);
  t.strictSame(sink.seqs(), [1]);
  state.isListening = false;
  await append('s', 1, false);
  await elapse(1);
  t.strictSame(sink.seqs(), [1, 2]);
  const before = state.tails;
  await elapse(20);
  t.equal(state.tails, before, 'where nothing is new, heads are all that is read');
});

t.test('a read that failed is tried again with the next tick', async (t) => {
  const { attach, append, elapse, state } = fakeStreams(t);
  const { sink } = await attach();
  state.isFailing = true;
  await append('s', 2);
  await elapse(3);
  t.strictSame(sink.seqs(), []);
  state.isFailing = false;
  await elapse(1);
  t.strictSame(sink.seqs(), [1, 2]);
  t.notOk(sink.isEnded);
});

t.test('when all are woken at once they are read for a few at a time, and each gets what came', async (t) => {
  const { sessions, attach, state, streams } = fakeStreams(t, { streamsMax: 50 });
  const ids = range(1, 50).map((n) => `session ${n}`);
  const sinks = [];
  for (const id of ids) {
    sessions.set(id, { status: 'idle', events: [] });
    sinks.push((await attach(id)).sink);
  }
  const { promise, resolve } = Promise.withResolvers<void>();
  state.tailGate = promise;
  const before = state.tails;
  for (const id of ids) sessions.get(id)?.events.push({ seq: 1, type: 'user.message', event: '{"seq":1}' });
  state.wakeAll();
  await turn();
  t.ok(state.tails - before <= 8, `${state.tails - before} reads at once`);
  resolve();
  await turn();
  for (const sink of sinks) t.strictSame(sink.seqs(), [1]);
  streams.close();
});
