import { createCall, path, wait } from './call.ts';
import { isLast, Position, type SentEvent, type SessionEvent } from './session-events.ts';
import { isFinal } from './shared-stream.ts';
import { RETRIES_MAX, type StreamOptions, streamOf } from './stream-of.ts';

export type RemoteToolsOptions = StreamOptions;

export type Appending = {
  /** The same for the same events, however often they are sent. */
  readonly idempotencyKey?: string;
  /** Cuts off a try. */
  readonly signal?: AbortSignal | undefined;
  /** Ends the tries and cuts none off: what became of the last one is then known, unless its answer was lost. */
  readonly stop?: AbortSignal;
};

export type Following = {
  /** After what; undefined: after what there is when it begins. */
  readonly position?: Position | undefined;
  readonly signal?: AbortSignal | undefined;
  /** Whatever is appended from now on will be heard of. */
  readonly onAttached?: () => void;
};

type Page = { readonly data: SessionEvent[]; readonly next_page: string | null };

const PAGE_EVENTS_MAX = 1_000;

/** What can be done with one session, over the routes of the server. Everything may throw ControlError. */
export function createSessionApi(given: RemoteToolsOptions, id: string) {
  const options = { ...given, retriesMax: given.retriesMax ?? RETRIES_MAX };
  const sleep = options.sleep ?? wait;
  const call = createCall(options, '/v1');

  const stream = streamOf<SessionEvent>(given, path`/v1/sessions/${id}/events/stream`);

  const readPage = (query: Record<string, string | number>, page: string | null, signal: AbortSignal | undefined) =>
    call<Page>('GET', path`/sessions/${id}/events`, {
      query: { ...query, limit: PAGE_EVENTS_MAX, ...(page === null ? {} : { page }) },
      ...(signal === undefined ? {} : { signal }),
    });

  async function* listFrom(instant: string, signal: AbortSignal | undefined): AsyncGenerator<SessionEvent> {
    let page: string | null = null;
    do {
      const answer: Page = await readPage(instant === '' ? {} : { 'created_at[gte]': instant }, page, signal);
      yield* answer.data;
      page = answer.next_page;
    } while (page !== null);
  }

  /** The newest events, down to the first of the newest instant: one append has one. */
  async function findNewest(signal: AbortSignal | undefined): Promise<Position> {
    const ids: string[] = [];
    let instant: string | undefined;
    let page: string | null = null;
    do {
      const answer: Page = await readPage({ order: 'desc' }, page, signal);
      for (const event of answer.data) {
        instant ??= event.processed_at;
        if (event.processed_at !== instant) return new Position(instant, ids);
        ids.push(event.id);
      }
      page = answer.next_page;
    } while (page !== null);
    return new Position(instant, ids);
  }

  return {
    /** Answers what was stored, in the order given. */
    async append(
      events: readonly SentEvent[],
      { idempotencyKey, signal, stop }: Appending = {},
    ): Promise<SessionEvent[]> {
      const appendOnce = createCall({
        ...options,
        async sleep(ms, cut) {
          stop?.throwIfAborted();
          await sleep(ms, cut ?? stop);
          stop?.throwIfAborted();
        },
      });
      const { data } = await appendOnce<{ data: SessionEvent[] }>('POST', path`/sessions/${id}/events`, {
        body: { events },
        ...(idempotencyKey === undefined ? {} : { idempotencyKey }),
        ...(signal === undefined ? {} : { signal }),
      });
      return data;
    },

    /**
     * Its events as they come, each once and in order, over lost connections and restarts of the server; ends after the last one a
     * session can have. Attaches first, then lists what was before: nothing falls in between.
     */
    async *follow({ position, signal, onAttached }: Following = {}): AsyncGenerator<SessionEvent> {
      signal?.throwIfAborted();
      const reader = stream.join();
      signal?.addEventListener('abort', reader.leave, { once: true });
      let reached = position;
      let isGapless = false;
      try {
        for (;;) {
          const given = await reader.next();
          signal?.throwIfAborted();
          if (given === undefined) return;
          if (given !== 'attached') {
            if (!isGapless) continue; // listed when it has attached anew
            if (given.type === 'session.deleted' || reached?.take(given)) yield given;
            if (isLast(given)) return;
            continue;
          }
          onAttached?.();
          try {
            reached ??= await findNewest(signal);
            for await (const event of listFrom(reached.instant, signal)) {
              if (reached.take(event)) yield event;
              if (isLast(event)) return;
            }
            isGapless = true;
          } catch (error) {
            signal?.throwIfAborted();
            if (isFinal(error)) throw error;
            isGapless = false;
            reader.restart();
          }
        }
      } finally {
        signal?.removeEventListener('abort', reader.leave);
        reader.leave();
      }
    },

    /** Once more changes nothing. */
    archive: (signal?: AbortSignal) =>
      call<unknown>('POST', path`/sessions/${id}/archive`, signal === undefined ? {} : { signal }),
  };
}

export type SessionApi = ReturnType<typeof createSessionApi>;
