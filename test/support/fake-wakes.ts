import { mock } from 'node:test';
import type { Test } from 'tap';
import { createHints, hintTopic, type Hint } from '../../src/dispatch/hints.ts';
import { createListeners } from '../../src/dispatch/listeners.ts';
import { createWakeStreams } from '../../src/http/wake-streams.ts';
import { fakeSink } from './fake-streams.ts';
import { turn } from './gates.ts';

/** Streams of environments without a server, in a time that only passes when the test lets it. */
export function fakeWakes(t: Test, { streamsMax = 10 } = {}) {
  mock.timers.enable({ apis: ['setInterval', 'setTimeout'] });
  t.teardown(() => mock.timers.reset());
  let nowMs = 0;
  let listening = 0;
  const listeners = createListeners();
  const hints = createHints();
  /** Counts what was not left again. */
  const counted = (leave: () => void) => {
    listening++;
    return () => {
      listening--;
      leave();
    };
  };
  const streams = createWakeStreams({
    listen: (topics, listener) => counted(listeners.listen(topics, listener)),
    onHint: (environmentId, listener) => counted(hints.listen(environmentId, listener)),
    now: () => nowMs,
    streamsMax,
  });
  return {
    streams,
    listening: () => listening,
    wake: listeners.wake,
    tellMissed: hints.tellMissed,
    hint: (environmentId: string, hint: Hint) => hints.tell(hintTopic(environmentId, hint)),
    attach(environmentId = 'e', minQueuedAgeMs = 0) {
      const sink = fakeSink();
      const detach = streams.attach(environmentId, minQueuedAgeMs, () => sink);
      const told = () => sink.frames.flatMap(([type, data]) => (type === '?' ? [] : [data]));
      return { sink, detach, told, pings: () => sink.frames.length - told().length };
    },
    async elapse(ms: number, stepMs = 1_000): Promise<void> {
      for (let left = ms; left > 0; left -= stepMs) {
        nowMs += Math.min(left, stepMs);
        mock.timers.tick(Math.min(left, stepMs));
        await turn();
      }
    },
  };
}
