import { createParser } from 'eventsource-parser';
import { backoffMs, ControlError, unreached } from './call.ts';

/** `attached`: from here on everything comes; what was before has to be listed, and some of it may come as well. */
export type Given<Event> = 'attached' | Event;

export type StreamReader<Event> = {
  /** The next one; undefined after `leave`. Rejects for good where the server refuses the stream. */
  next(): Promise<Given<Event> | undefined>;
  /** Has it attach anew. */
  restart(): void;
  leave(): void;
};

export type SharedStreamOptions = {
  /** Asks for the stream. Rejects with ControlError. */
  open(signal: AbortSignal): Promise<Response>;
  sleep(ms: number, signal: AbortSignal): Promise<void>;
  /** How often it may fail before it was attached once; from then on it is tried for as long as somebody reads. */
  failuresMax: number;
  /** A stream that says nothing for so long is lost. */
  silenceMsMax: number;
};

type Reader<Event> = StreamReader<Event> & {
  give(given: Given<Event>, characters: number): void;
  fail(error: unknown): void;
};
type Run<Event> = {
  readonly readers: Set<Reader<Event>>;
  readonly stop: AbortController;
  isAttached: boolean;
  cut(): void;
};

/** A reader that is further behind than this is told to list instead. */
const CHARACTERS_MAX = 16 * 1_048_576;
/** A stream that lasted this long was a good one: the next failure counts as the first. */
const GOOD_MS = 5_000;

/** One connection for all who read the same at a time: open while there is a reader, attached anew when it is lost. */
export function createSharedStream<Event>({ open, sleep, failuresMax, silenceMsMax }: SharedStreamOptions) {
  let current: Run<Event> | undefined;

  async function run(run: Run<Event>): Promise<void> {
    const { readers, stop } = run;
    let wasAttached = false;
    for (let failures = 0; !stop.signal.aborted; ) {
      const start = performance.now();
      let error: unknown;
      try {
        await connect(run);
      } catch (thrown) {
        error = thrown;
      }
      wasAttached ||= run.isAttached;
      failures = run.isAttached && performance.now() - start > GOOD_MS ? 0 : failures + 1;
      run.isAttached = false;
      if (stop.signal.aborted) return;
      if (isFinal(error) || (!wasAttached && failures > failuresMax)) {
        if (current === run) current = undefined;
        for (const reader of readers) reader.fail(error);
        return;
      }
      await sleep(backoffMs(Math.max(0, failures - 1)), stop.signal).catch(() => {});
    }
  }

  /** One connection, from its beginning to its end. */
  async function connect(run: Run<Event>): Promise<void> {
    const lost = new AbortController();
    run.cut = () => lost.abort();
    let watchdog: ReturnType<typeof setTimeout> | undefined;
    const isAlive = () => {
      clearTimeout(watchdog);
      watchdog = setTimeout(run.cut, silenceMsMax);
    };
    isAlive();
    try {
      const response = await open(AbortSignal.any([run.stop.signal, lost.signal]));
      run.isAttached = true;
      for (const reader of run.readers) reader.give('attached', 0);
      const parser = createParser({
        onEvent({ data }) {
          const event = JSON.parse(data);
          if (event.type === 'ping') return;
          for (const reader of run.readers) reader.give(event, data.length);
        },
      });
      const decoder = new TextDecoder();
      const chunks = response.body?.getReader();
      for (;;) {
        const chunk = await chunks?.read();
        if (chunk?.value === undefined) return;
        isAlive();
        parser.feed(decoder.decode(chunk.value, { stream: true }));
      }
    } catch (error) {
      throw error instanceof ControlError ? error : unreached(error);
    } finally {
      clearTimeout(watchdog);
      lost.abort(); // what was not read to its end must not stay open
    }
  }

  return {
    /** Reads from now on, beginning with `attached`. Whoever joins leaves. */
    join(): StreamReader<Event> {
      const joined: Run<Event> = current ?? {
        readers: new Set(),
        stop: new AbortController(),
        isAttached: false,
        cut() {},
      };
      const reader = createReader<Event>({
        restart: () => joined.cut(),
        leave() {
          joined.readers.delete(reader);
          if (joined.readers.size > 0) return;
          joined.stop.abort();
          if (current === joined) current = undefined;
        },
      });
      joined.readers.add(reader);
      if (joined.isAttached) reader.give('attached', 0);
      if (current === undefined) {
        current = joined;
        void run(joined);
      }
      return reader;
    },
  };
}

/** What another try would not change: the credential or the session is not known, the request is not understood. */
export const isFinal = (error: unknown): boolean => {
  if (!(error instanceof ControlError)) return error !== undefined;
  const { status = 500 } = error;
  return status >= 400 && status < 500 && status !== 408 && status !== 429;
};

function createReader<Event>({ restart, leave }: Pick<StreamReader<Event>, 'restart' | 'leave'>): Reader<Event> {
  const queue: { readonly given: Given<Event>; readonly characters: number }[] = [];
  let queued = 0;
  let isOver = false;
  let failure: { readonly error: unknown } | undefined;
  let wake = () => {};
  return {
    restart,
    give(given, characters) {
      const isBehind = queued + characters > CHARACTERS_MAX && queue.length > 0;
      // What is listed from here on holds what is still in the queue.
      if (given === 'attached' || isBehind) {
        queue.length = 0;
        queue.push({ given: 'attached', characters: 0 });
        queued = 0;
      } else {
        queue.push({ given, characters });
        queued += characters;
      }
      wake();
    },
    fail(error) {
      failure = { error };
      wake();
    },
    leave() {
      isOver = true;
      leave();
      wake();
    },
    async next() {
      while (queue.length === 0 && !isOver && failure === undefined) {
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
      }
      if (isOver) return undefined;
      const next = queue.shift();
      if (next === undefined) throw failure?.error;
      queued -= next.characters;
      return next.given;
    },
  };
}
