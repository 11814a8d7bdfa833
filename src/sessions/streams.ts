import { frame, type Sink } from '../dispatch/sink.ts';
import { createSlots } from '../dispatch/slots.ts';
import { QueueError } from '../queue/errors.ts';
import { mintId } from '../queue/ids.ts';
import type { Head, Tail } from './read-events.ts';
import { sessionNotFound, sessionTopic } from './session.ts';

export type Attached = { onDrained(): void; detach(): void };

export type StreamsOptions = {
  readHeads(ids: readonly string[]): Promise<readonly Head[]>;
  tailEvents(id: string, afterSeq: number): Promise<Tail>;
  /** Told whenever the topic may have something new; answers what ends it. */
  listen(topics: readonly string[], listener: () => void): () => void;
  /** Whether what other replicas append is heard of. */
  isListening(): boolean;
  now?: () => number;
  tickMs?: number;
  streamsMax?: number;
};

type Reader = {
  readonly sink: Sink;
  position: number;
  fullSince: number | undefined;
  /** In which of the ticks between two pings its own comes. */
  readonly pingTick: number;
};
type Feed = {
  readonly id: string;
  readonly readers: Set<Reader>;
  isLooking: boolean;
  isWoken: boolean;
  unlisten(): void;
};

const TICK_MS = 1_000;
const TICKS_PER_PING = 15;
const STALLED_MS_MAX = 120_000;
export const STREAMS_MAX = 10_000;
const HEADS_PER_LOOK_MAX = 1_000;
/** When LISTEN comes back, all are woken: workers are not to wait behind thousands of reads. */
const LOOKS_IN_FLIGHT_MAX = 4;

export const PING = frame('ping', '{"type":"ping"}');

/**
 * Who reads which session's events as they come, in this process. Nobody holds a database connection: a wake-up reads what came after
 * the slowest reader that is ready, once for all readers of the session. A reader that is full by the end of a read is left where it is, so that
 * no more than one read is in memory for it, and goes on from there when it has drained. It gets that read whole: the rest of it would be
 * read again for every few events that it has room for. In place of a lost wake-up all sessions' heads are looked at
 * together, every 15 s, and each second while nothing is heard of other replicas.
 */
export function createStreams({ readHeads, tailEvents, listen, isListening, ...options }: StreamsOptions) {
  const { now = () => performance.now(), tickMs = TICK_MS, streamsMax = STREAMS_MAX } = options;
  const feeds = new Map<string, Feed>();
  let readers = 0;
  let opening = 0;
  let attached = 0;
  let ticks = 0;
  let timer: NodeJS.Timeout | undefined;
  let isClosed = false;
  const inTurn = createSlots(LOOKS_IN_FLIGHT_MAX);

  const feedOf = (id: string): Feed => {
    const known = feeds.get(id);
    if (known !== undefined) return known;
    const feed: Feed = { id, readers: new Set(), isLooking: false, isWoken: false, unlisten: () => {} };
    feed.unlisten = listen([sessionTopic(id)], () => wake(feed));
    feeds.set(id, feed);
    return feed;
  };

  const remove = (feed: Feed, reader: Reader): void => {
    if (!feed.readers.delete(reader)) return;
    readers--;
    if (feed.readers.size > 0) return;
    feed.unlisten();
    feeds.delete(feed.id);
    if (feeds.size > 0) return;
    clearInterval(timer);
    timer = undefined;
  };

  const end = (feed: Feed, reader: Reader): void => {
    remove(feed, reader);
    reader.sink.end();
  };

  const wake = (feed: Feed): void => {
    feed.isWoken = true;
    void look(feed);
  };

  async function look(feed: Feed): Promise<void> {
    if (feed.isLooking) return;
    feed.isLooking = true;
    try {
      while (feed.isWoken) {
        feed.isWoken = false;
        const ready = [...feed.readers].filter(({ fullSince }) => fullSince === undefined);
        if (ready.length === 0) break;
        const tail = await inTurn(() => tailEvents(feed.id, Math.min(...ready.map(({ position }) => position))));
        for (const event of tail.events) deliver(feed, ready, event);
        if (tail.hasMore) feed.isWoken = true;
      }
    } catch (error) {
      if (error instanceof QueueError && error.code === 'not_found') tellDeleted(feed);
      else feed.isWoken = true; // the next tick looks again
    } finally {
      feed.isLooking = false;
    }
  }

  function deliver(feed: Feed, ready: readonly Reader[], { seq, type, event }: Tail['events'][number]): void {
    const text = frame(type, event);
    for (const reader of ready) {
      if (reader.position >= seq || !feed.readers.has(reader)) continue;
      reader.position = seq;
      if (!reader.sink.write(text)) reader.fullSince ??= now();
      if (type === 'session.status_terminated') end(feed, reader);
    }
  }

  function tellDeleted(feed: Feed): void {
    const event = { id: mintId('sevt'), type: 'session.deleted', processed_at: new Date().toISOString() };
    for (const reader of feed.readers) {
      reader.sink.write(frame(event.type, JSON.stringify(event)));
      end(feed, reader);
    }
  }

  function tick(): void {
    ticks = (ticks + 1) % TICKS_PER_PING;
    for (const feed of feeds.values()) {
      if (feed.isWoken) void look(feed);
      for (const reader of feed.readers) if (reader.pingTick === ticks) ping(feed, reader);
    }
    if (ticks === 0 || !isListening()) void catchUp().catch(() => {}); // the next one will
  }

  function ping(feed: Feed, reader: Reader): void {
    if (reader.fullSince === undefined) {
      if (!reader.sink.write(PING)) reader.fullSince = now();
    } else if (now() - reader.fullSince >= STALLED_MS_MAX) {
      remove(feed, reader);
      reader.sink.cut();
      return;
    }
    reader.sink.isAllowed().then(
      (isAllowed) => isAllowed || end(feed, reader),
      () => {}, // nothing is known of it: asked again with the next ping
    );
  }

  let isCatchingUp = false;
  async function catchUp(): Promise<void> {
    if (isCatchingUp) return;
    isCatchingUp = true;
    try {
      const ids = [...feeds.keys()];
      for (let from = 0; from < ids.length; from += HEADS_PER_LOOK_MAX) {
        const asked = ids.slice(from, from + HEADS_PER_LOOK_MAX);
        const heads = new Map((await readHeads(asked)).map((head) => [head.id, head.lastSeq]));
        for (const id of asked) {
          const feed = feeds.get(id);
          if (feed === undefined) continue;
          const head = heads.get(id);
          if (head === undefined) tellDeleted(feed);
          else if ([...feed.readers].some(({ position }) => position < head)) wake(feed);
        }
      }
    } finally {
      isCatchingUp = false;
    }
  }

  async function begin(id: string, open: () => Sink): Promise<Attached | undefined> {
    const [head] = await readHeads([id]);
    if (head === undefined) throw sessionNotFound(id);
    const sink = open();
    if (head.status === 'terminated' || isClosed) {
      if (head.lastEvent !== null) sink.write(frame('session.status_terminated', head.lastEvent));
      sink.end();
      return undefined;
    }
    const feed = feedOf(id);
    // Spread, or after a restart thousands would be pinged, and their credentials looked up, in the same instant for ever.
    const pingTick = ++attached % TICKS_PER_PING;
    const reader: Reader = { sink, position: head.lastSeq, fullSince: undefined, pingTick };
    feed.readers.add(reader);
    readers++;
    timer ??= setInterval(tick, tickMs);
    wake(feed); // what was appended since the head was read
    return {
      onDrained() {
        reader.fullSince = undefined;
        if (feed.readers.has(reader)) wake(feed);
      },
      detach: () => remove(feed, reader),
    };
  }

  return {
    /**
     * Streams what is appended from now on. `open` is called once it is known from where: what was committed before is in the list, the
     * rest comes to the sink, and neither is lost. A session that is terminated tells so again and ends. Refuses: not_found; unavailable
     * while closing, and past 10,000 streams.
     */
    async attach(id: string, open: () => Sink): Promise<Attached | undefined> {
      if (isClosed) throw new QueueError('unavailable', 'the server is shutting down, try again');
      if (readers + opening >= streamsMax) {
        throw new QueueError('unavailable', `${streamsMax} streams are open, try again later`);
      }
      opening++;
      try {
        return await begin(id, open);
      } finally {
        opening--;
      }
    },

    /** How many are attached. */
    size: () => readers,

    /** Ends all streams cleanly: their clients come back to another replica. */
    close(): void {
      isClosed = true;
      for (const feed of [...feeds.values()]) for (const reader of [...feed.readers]) end(feed, reader);
    },
  };
}

export type Streams = ReturnType<typeof createStreams>;
