import t from 'tap';
import { fakeSink, fakeStreams } from '../support/fake-streams.ts';
import { turn } from '../support/gates.ts';

const typesOf = ({ frames }: { frames: [string, string][] }) => frames.map(([type]) => type);

t.test('a session that is deleted ends its streams, by its wake-up or by the backstop', async (t) => {
  const { attach, sessions, tell, elapse, streams, listeners } = fakeStreams(t);
  const readers = [await attach(), await attach()];
  sessions.delete('s');
  await tell('s');
  for (const { sink } of readers) {
    t.strictSame(typesOf(sink), ['session.deleted']);
    t.match(JSON.parse(sink.frames[0]?.[1] ?? ''), { type: 'session.deleted', id: /^sevt_/, processed_at: String });
    t.ok(sink.isEnded);
  }
  t.equal(streams.size(), 0);
  t.equal(listeners.size, 0);

  sessions.set('s', { status: 'idle', events: [] });
  const late = await attach();
  sessions.delete('s');
  await elapse(15);
  t.strictSame(
    typesOf(late.sink).filter((type) => type !== 'ping'),
    ['session.deleted'],
  );
  t.ok(late.sink.isEnded);
});

t.test('a session that is terminated tells so and ends its streams', async (t) => {
  const { attach, append, sessions, streams } = fakeStreams(t);
  const { sink } = await attach();
  await append('s', 1, false);
  await append('s', 1, true, 'session.status_terminated');
  t.strictSame(typesOf(sink), ['user.message', 'session.status_terminated']);
  t.ok(sink.isEnded);
  t.equal(streams.size(), 0);

  sessions.set('s', { ...(sessions.get('s') ?? { events: [] }), status: 'terminated' });
  const late = await attach();
  t.equal(late.attached, undefined);
  t.strictSame(typesOf(late.sink), ['session.status_terminated']);
  t.ok(late.sink.isEnded);
  t.equal(streams.size(), 0);
});

t.test('there is no stream of a session that is not', async (t) => {
  const { streams } = fakeStreams(t);
  const opened: unknown[] = [];
  await t.rejects(
    streams.attach('other', () => {
      opened.push(true);
      return fakeSink();
    }),
    { code: 'not_found' },
  );
  t.strictSame(opened, [], 'the answer has not begun: it may be a refusal');
});

t.test('a stream ends with the next ping once its credential is no good, and not while that is unknown', async (t) => {
  const { attach, elapse, streams } = fakeStreams(t);
  const [revoked, unknown] = [await attach(), await attach()];
  revoked.sink.allowed = false;
  unknown.sink.allowed = new Error('no database');
  await elapse(15);
  t.strictSame(typesOf(revoked.sink), ['ping']);
  t.ok(revoked.sink.isEnded);
  t.notOk(unknown.sink.isEnded);
  t.equal(streams.size(), 1);
});

t.test('closing ends all streams, and none begins any more', async (t) => {
  const { attach, streams, state, listeners, sessions } = fakeStreams(t);
  sessions.set('s2', { status: 'idle', events: [] });
  const readers = [await attach('s'), await attach('s'), await attach('s2')];
  const { promise, resolve } = Promise.withResolvers<void>();
  state.gate = promise;
  const late = fakeSink();
  const attaching = streams.attach('s', () => late);
  streams.close();
  for (const { sink } of readers) t.ok(sink.isEnded);
  resolve();
  t.equal(await attaching, undefined);
  t.ok(late.isEnded, 'one that was on its way ends, too');
  await t.rejects(attach('s'), { code: 'unavailable' });
  t.equal(streams.size(), 0);
  t.equal(listeners.size, 0);
});

t.test('a reader that has left is forgotten, and leaves once only', async (t) => {
  const { attach, append, streams, listeners } = fakeStreams(t);
  const [gone, other] = [await attach(), await attach()];
  gone.attached?.detach();
  gone.attached?.detach();
  gone.attached?.onDrained();
  t.equal(streams.size(), 1);
  await append('s');
  t.strictSame(gone.sink.seqs(), []);
  t.strictSame(other.sink.seqs(), [1]);
  other.attached?.detach();
  t.equal(streams.size(), 0);
  t.equal(listeners.size, 0);
});

t.test('no more streams are open than the bound, also when they come at once', async (t) => {
  const { attach, streams, sessions } = fakeStreams(t, { streamsMax: 3 });
  const outcomes = await Promise.allSettled(Array.from({ length: 5 }, () => attach()));
  const refused = outcomes.flatMap((outcome) => (outcome.status === 'rejected' ? [outcome.reason.code] : []));
  t.strictSame(refused, ['unavailable', 'unavailable']);
  t.equal(streams.size(), 3);
  const open = outcomes.flatMap((outcome) => (outcome.status === 'fulfilled' ? [outcome.value] : []));
  open[0]?.attached?.detach();
  await t.rejects(attach('other'), { code: 'not_found' });
  sessions.set('over', { status: 'terminated', events: [] });
  await attach('over');
  await turn();
  await attach(); // neither of these has kept a place
  t.equal(streams.size(), 3);
});
