import type { Queue } from '../create-queue.ts';
import type { Hint } from '../dispatch/hints.ts';
import { createPace } from '../dispatch/pace.ts';
import { frame, type Sink } from '../dispatch/sink.ts';
import { QueueError } from '../queue/errors.ts';
import type { EnvironmentEvent } from '../wire/environment-events.ts';

export type WakeStreamsOptions = Pick<Queue, 'listen' | 'onHint'> & {
  now?: () => number;
  tickMs?: number;
  streamsMax?: number;
};

type Reader = {
  readonly sink: Sink;
  /** In which of the ticks between two pings its own comes. */
  readonly pingTick: number;
  /** Since when something that was written has not left this process. */
  behindSince: number | undefined;
  /** Whether it is too far behind. */
  check: NodeJS.Immediate | undefined;
  forget(): void;
};

const TICK_MS = 1_000;
const TICKS_PER_PING = 15;
const BYTES_BEHIND_MAX = 65_536;
const BEHIND_MS_MAX = 30_000;
const WAKE_STREAMS_MAX = 10_000;
const PING = ': ping\n\n';

const toFrame = (event: EnvironmentEvent): string => frame(event.type, JSON.stringify(event));
const WORK_AVAILABLE = toFrame({ type: 'work_available' });

/** Undefined for what is not told: it may be of a later version. */
function toEvent(hint: Hint): EnvironmentEvent | undefined {
  switch (hint.type) {
    case 'stop_requested':
      return { type: hint.type, work_id: hint.workId };
    case 'lock_released':
      return { type: hint.type, name: hint.name };
    case 'environment_paused':
    case 'hints_missed':
    case 'environment_resumed':
      return { type: hint.type };
    default:
      return undefined;
  }
}

/**
 * Who is told of what happens in which environment, in this process. Hints only: a reader that does not read is cut, and what it missed it
 * finds by looking, which it is told to whenever it attaches and whenever word from other replicas may have been lost. Nothing here asks the database.
 */
export function createWakeStreams({ listen, onHint, ...options }: WakeStreamsOptions) {
  const { now = () => performance.now(), tickMs = TICK_MS, streamsMax = WAKE_STREAMS_MAX } = options;
  const readers = new Set<Reader>();
  let attached = 0;
  let ticks = 0;
  let timer: NodeJS.Timeout | undefined;
  let isClosed = false;

  function remove(reader: Reader): void {
    if (!readers.delete(reader)) return;
    reader.forget();
    if (readers.size > 0) return;
    clearInterval(timer);
    timer = undefined;
  }

  const end = (reader: Reader): void => {
    remove(reader);
    reader.sink.end();
  };

  const cut = (reader: Reader): void => {
    remove(reader);
    reader.sink.cut();
  };

  function write(reader: Reader, text: string): void {
    reader.sink.write(text);
    if (reader.sink.bytesBehind() <= BYTES_BEHIND_MAX || reader.check !== undefined) return;
    // What one turn of the event loop writes has not been offered to the system yet.
    reader.check = setImmediate(() => {
      reader.check = undefined;
      if (reader.sink.bytesBehind() > BYTES_BEHIND_MAX) cut(reader);
    });
  }

  function tick(): void {
    ticks = (ticks + 1) % TICKS_PER_PING;
    for (const reader of readers) {
      reader.behindSince = reader.sink.bytesBehind() === 0 ? undefined : (reader.behindSince ?? now());
      if (now() - (reader.behindSince ?? now()) >= BEHIND_MS_MAX) cut(reader);
      else if (reader.pingTick === ticks) ping(reader);
    }
  }

  function ping(reader: Reader): void {
    write(reader, PING);
    reader.sink.isAllowed().then(
      (isAllowed) => isAllowed || !readers.has(reader) || end(reader),
      () => {}, // nothing is known of it: asked again with the next ping
    );
  }

  return {
    /**
     * Tells of the environment from now on, of work `minQueuedAgeMs` after it came, and at once that there may be some. `open` is called when there is room.
     * Answers what ends it. Refuses: unavailable while closing, and past 10,000 streams.
     */
    attach(environmentId: string, minQueuedAgeMs: number, open: () => Sink): () => void {
      if (isClosed) throw new QueueError('unavailable', 'the server is shutting down, try again');
      if (readers.size >= streamsMax) {
        throw new QueueError('unavailable', `${streamsMax} streams are open, try again later`);
      }
      const sink = open();
      const pace = createPace({ tell: () => write(reader, WORK_AVAILABLE), delayMs: minQueuedAgeMs, now });
      const unlisten = [
        listen([environmentId], pace.wake),
        onHint(environmentId, (hint) => {
          if (hint.type === 'environment_deleted') return end(reader);
          const event = toEvent(hint);
          if (event !== undefined) write(reader, toFrame(event));
        }),
      ];
      const reader: Reader = {
        sink,
        // Spread, or after a restart thousands would be pinged, and their credentials looked up, in the same instant for ever.
        pingTick: ++attached % TICKS_PER_PING,
        behindSince: undefined,
        check: undefined,
        forget() {
          clearImmediate(reader.check);
          pace.close();
          for (const leave of unlisten) leave();
        },
      };
      readers.add(reader);
      timer ??= setInterval(tick, tickMs);
      write(reader, WORK_AVAILABLE);
      return () => remove(reader);
    },

    /** How many are attached. */
    size: () => readers.size,

    /** Ends all streams cleanly: their clients come back to another replica. */
    close(): void {
      isClosed = true;
      for (const reader of [...readers]) end(reader);
    },
  };
}

export type WakeStreams = ReturnType<typeof createWakeStreams>;
