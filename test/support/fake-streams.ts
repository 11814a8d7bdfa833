import { mock } from 'node:test';
import type { Test } from 'tap';
import { QueueError } from '../../src/queue/errors.ts';
import type { Head } from '../../src/sessions/read-events.ts';
import type { Sink } from '../../src/dispatch/sink.ts';
import { createStreams } from '../../src/sessions/streams.ts';
import { turn } from './gates.ts';

type Session = { status: Head['status']; readonly events: { seq: number; type: string; event: string }[] };

export type FakeSink = Sink & {
  /** Frames as they were written, the type and the data. */
  readonly frames: [type: string, data: string][];
  /** What every write answers. */
  hasRoom: boolean;
  /** What has not left. */
  behind: number;
  isEnded: boolean;
  isCut: boolean;
  allowed: boolean | Error;
  /** The numbers of the events that came. */
  seqs(): number[];
};

export function fakeSink(): FakeSink {
  const frames: FakeSink['frames'] = [];
  const sink: FakeSink = {
    frames,
    hasRoom: true,
    behind: 0,
    isEnded: false,
    isCut: false,
    allowed: true,
    write(frame) {
      if (sink.isEnded || sink.isCut) throw new Error('written after its end');
      const [, type = '?', data = '?'] = /^event: (\S+)\ndata: (.*)\n\n$/.exec(frame.toString()) ?? [];
      frames.push([type, data]);
      return sink.hasRoom;
    },
    bytesBehind: () => sink.behind,
    end() {
      sink.isEnded = true;
    },
    cut() {
      sink.isCut = true;
    },
    async isAllowed() {
      if (sink.allowed instanceof Error) throw sink.allowed;
      return sink.allowed;
    },
    seqs: () => frames.flatMap(([, data]) => JSON.parse(data).seq ?? []),
  };
  return sink;
}

/** Streams over sessions in memory, in a time that only passes when the test lets it. */
export function fakeStreams(t: Test, { eventsPerTail = 100, streamsMax = 10 } = {}) {
  mock.timers.enable({ apis: ['setInterval'] });
  t.teardown(() => mock.timers.reset());
  let nowMs = 0;
  const sessions = new Map<string, Session>([['s', { status: 'idle', events: [] }]]);
  const listeners = new Map<string, () => void>();
  const state = {
    isListening: true,
    isFailing: false,
    heads: 0,
    tails: 0,
    gate: Promise.resolve(),
    tailGate: Promise.resolve(),
    wakeAll() {
      for (const listener of listeners.values()) listener();
    },
  };
  const streams = createStreams({
    streamsMax,
    async readHeads(ids) {
      state.heads++;
      if (state.isFailing) throw new Error('no database');
      const heads = ids.flatMap((id) => {
        const session = sessions.get(id);
        if (session === undefined) return [];
        const lastEvent = session.status === 'terminated' ? (session.events.at(-1)?.event ?? null) : null;
        return [{ id, lastSeq: session.events.length, status: session.status, lastEvent }];
      });
      await state.gate;
      return heads;
    },
    async tailEvents(id, afterSeq) {
      state.tails++;
      if (state.isFailing) throw new Error('no database');
      const session = sessions.get(id);
      if (session === undefined) throw new QueueError('not_found', 'gone');
      await state.tailGate;
      const events = session.events.slice(afterSeq);
      return { events: events.slice(0, eventsPerTail), hasMore: events.length > eventsPerTail };
    },
    listen([topic = ''], listener) {
      listeners.set(topic, listener);
      return () => listeners.delete(topic);
    },
    isListening: () => state.isListening,
    now: () => nowMs,
  });
  const tell = async (id: string) => {
    listeners.get(`session:${id}`)?.();
    await turn();
  };
  return {
    streams,
    sessions,
    listeners,
    state,
    tell,
    /** Appends; `isTold` false: the wake-up is lost. */
    async append(id: string, count = 1, isTold = true, type = 'user.message'): Promise<void> {
      const events = sessions.get(id)?.events ?? [];
      for (let n = 0; n < count; n++) {
        const seq = events.length + 1;
        events.push({ seq, type, event: JSON.stringify({ seq, type }) });
      }
      if (isTold) await tell(id);
    },
    async elapse(seconds: number): Promise<void> {
      for (let second = 0; second < seconds; second++) {
        nowMs += 1_000;
        mock.timers.tick(1_000);
        await turn();
      }
    },
    async attach(id = 's', sink = fakeSink()) {
      const attached = await streams.attach(id, () => sink);
      await turn();
      return { sink, attached };
    },
  };
}
