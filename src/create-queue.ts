import { hostname } from 'node:os';
import { sql } from 'kysely';
import type { CallerTransaction, Database } from './db/connect.ts';
import { createHandOuts } from './dispatch/hand-outs.ts';
import { createHints, type Hint, hintTopic } from './dispatch/hints.ts';
import type { TakeRequest } from './dispatch/lines.ts';
import { createListeners } from './dispatch/listeners.ts';
import { createNotifier } from './dispatch/notifier.ts';
import { createRefusals } from './dispatch/refusals.ts';
import { createSightings } from './dispatch/sightings.ts';
import { createProcessLane, type ProcessLane } from './process/lane.ts';
import { type Enqueued, type EnqueueRequest, enqueue, enqueueAll, offeredOf } from './queue/enqueue.ts';
import { mintId } from './queue/ids.ts';
import { checkRef, type Offered, type TraceContext, topicOf, type WorkRef } from './queue/items.ts';
import { checkInteger, checkText, LIMITS } from './queue/limits.ts';
import { patchMetadata } from './queue/metadata.ts';
import { type HandOut, poll } from './queue/poll.ts';
import { putBack } from './queue/put-back.ts';
import { recordRefusals } from './queue/refusals.ts';
import { DEFAULT_SETTINGS, type QueueSettings } from './queue/settings.ts';
import { recordSightings } from './queue/sightings.ts';
import { createReads, type Reads } from './reads.ts';
import { createSetCalls, type SetCalls } from './set-calls.ts';
import { createSingleCalls, type SingleCalls } from './single-calls.ts';
import { createUpkeep } from './upkeep.ts';

export type QueueOptions = {
  readonly database: Database;
  readonly settings?: Partial<QueueSettings>;
  /** Who claims, where a claim does not say: 1 to 256 characters. Default: one made up for this queue. */
  readonly workerId?: string;
  /** The active span's context, stored with what is enqueued under it. */
  readonly traceContext?: () => TraceContext | undefined;
  /** Told of faults in the background; nothing is lost by them. */
  readonly onFault?: (error: unknown, what: string) => void;
};

export type PollRequest = {
  readonly environmentId: string;
  /** 1 to 256 characters. */
  readonly workerId?: string | undefined;
  /** 1 to 999; absent: look once, do not wait. */
  readonly blockMs?: number | undefined;
  /** How long the item stays reserved for this poll, >= 1, clamped to 600000; absent: as the environment says. */
  readonly reclaimOlderThanMs?: number | undefined;
  /** Takes only what has waited this long since it was enqueued, 0 to 86400000; absent: 0. */
  readonly minQueuedAgeMs?: number | undefined;
  /** Aborts when whoever asked has gone: what was taken for it is put back. */
  readonly signal?: AbortSignal | undefined;
};

/**
 * The queue as a library, without HTTP. The verbs work at once; `start` adds the background: LISTEN, so that another
 * replica's enqueue ends a wait, and the sweep. Close it before its database. Every verb may throw DatabaseUnavailable.
 */
export function createQueue({
  database,
  settings: overrides,
  workerId = `${hostname()}-${mintId('worker')}`,
  traceContext,
  onFault = () => {},
}: QueueOptions) {
  const settings: QueueSettings = { ...DEFAULT_SETTINGS, ...overrides };
  const origin = mintId('req');
  const listeners = createListeners();
  const hints = createHints();
  const handOuts = createHandOuts({
    async look(environmentId, minQueuedAgeMs, takers, isDeep) {
      const found = await poll(database, environmentId, takers, { ...settings, minQueuedAgeMs, isDeep });
      if (found.isFollowed) wake(environmentId);
      return found;
    },
    async putBack({ item, sessionsToken }) {
      if (await putBack(database, sessionsToken, true)) wake(item.environmentId);
    },
    isWatched: () => upkeep.isWatching(),
  });
  const sightings = createSightings({ record: (seen) => recordSightings(database, seen) });
  const refusals = createRefusals({ record: (refused) => recordRefusals(database, refused) });
  const notifier = createNotifier({
    send: async (topic) =>
      void (await database.rows(sql`select pg_notify(${database.channel}, ${`${topic} ${origin}`})`)),
  });
  const background: { close(): Promise<void> }[] = [];
  let listening = () => false;

  const wakeHere = (topic?: string) => {
    handOuts.wake(topic);
    listeners.wake(topic);
    if (topic !== undefined) hints.tell(topic);
  };

  const wake = (topic: string) => {
    wakeHere(topic);
    notifier.tell(topic);
  };

  const hint = (environmentId: string, told: Hint): void => wake(hintTopic(environmentId, told));

  const lane = createProcessLane({
    database,
    settings,
    workerId,
    wake: (topics) => topics.forEach(wake),
    listen: listeners.listen,
  });

  const upkeep = createUpkeep({ database, settings, wake, lines: handOuts.lines, wakeLine: handOuts.wakeLine });

  /** The active span's context, where the request has none. */
  const traced = (request: EnqueueRequest): EnqueueRequest => {
    const context = request.traceContext ?? traceContext?.();
    return context === undefined ? request : { ...request, traceContext: context };
  };

  const announce = (offered: readonly Offered[]) => new Set(offered.map(topicOf)).forEach(wake);

  /** In a transaction the notification is part of it. */
  const announceNew = (enqueued: readonly Enqueued[], transaction: CallerTransaction | undefined) => {
    if (transaction === undefined) announce(offeredOf(enqueued));
  };

  const singleCalls = createSingleCalls({ database, settings, wake });

  // By their names: of what is spread into a literal the package's types would lose the docstrings.
  const others: ProcessLane & SingleCalls & SetCalls & Reads = {
    ...lane,
    ...singleCalls,
    ...createSetCalls({ database, settings, wake, hint }),
    ...createReads({ database, sightings, refusals }),
  };

  return Object.assign(others, {
    settings,

    /**
     * Puts work in; idempotent while live. In `transaction`, the caller's, the row and its notification commit with the
     * caller's writes. Refuses: invalid_request, invalid_metadata, environment_not_found,
     * environment_archived; conflict when the request id is known for another session or kind.
     */
    async enqueue(request: EnqueueRequest, transaction?: CallerTransaction): Promise<Enqueued> {
      const asked = traced(request);
      const enqueued = await (transaction === undefined
        ? singleCalls.enqueueOne(asked)
        : enqueue(database, asked, transaction));
      announceNew([enqueued], transaction);
      return enqueued;
    },

    /** The same for 1 to 1000 requests, all or nothing; answers in the order asked. Also refuses: conflict. */
    async enqueueAll(requests: readonly EnqueueRequest[], transaction?: CallerTransaction): Promise<Enqueued[]> {
      const enqueued = await enqueueAll(database, requests.map(traced), transaction);
      announceNew(enqueued, transaction);
      return enqueued;
    },

    /** There may be work that no verb of this queue put in: polls that wait on the environment look again, here and on other replicas; here also for leases that were moved by hand. */
    wake(topic: string): void {
      handOuts.wake(topic, true);
      listeners.wake(topic);
      notifier.tell(topic);
    },

    /** The same for items that became free, on either lane. */
    announce,

    /** Told of each wake-up of these topics, here and (once started) from other replicas; answers what ends it. */
    listen: listeners.listen,

    /** Tells those who listen for the environment's hints, here and (once started) on other replicas. At most once is promised, and not even that. */
    hint,

    /** Told of each hint of an environment, from here and (once started) from other replicas; answers what ends it. */
    onHint: hints.listen,

    /** The next item for a worker, reserved; null when there is none in time. Refuses: environment_not_found, invalid_request. */
    async poll(request: PollRequest): Promise<HandOut | null> {
      const { environmentId, workerId, blockMs, reclaimOlderThanMs, minQueuedAgeMs = 0, signal } = request;
      // Looks are shared: what SQL cannot take would fail them for others.
      checkText('environmentId', environmentId, LIMITS.idCharacters);
      if (workerId !== undefined) checkText('workerId', workerId, LIMITS.workerIdCharacters);
      if (blockMs !== undefined) checkInteger('blockMs', blockMs, 1, LIMITS.blockMs);
      if (reclaimOlderThanMs !== undefined) {
        checkInteger('reclaimOlderThanMs', reclaimOlderThanMs, 1, Number.MAX_SAFE_INTEGER);
      }
      checkInteger('minQueuedAgeMs', minQueuedAgeMs, 0, LIMITS.minQueuedAgeMs);
      const taker: TakeRequest = {
        environmentId,
        workerId: workerId ?? null,
        blockMs,
        reclaimOlderThanMs:
          reclaimOlderThanMs === undefined ? null : Math.min(reclaimOlderThanMs, LIMITS.reclaimOlderThanMs),
        minQueuedAgeMs,
        signal,
      };
      sightings.note(environmentId, taker.workerId);
      const handOut = await handOuts.take(taker);
      sightings.note(environmentId, taker.workerId);
      return handOut;
    },

    /**
     * Gives back what a poll took and could not deliver; true when it was still undelivered. `unseen`: no byte of the
     * answer left this process, so the id may stay.
     */
    async putBack({ item, sessionsToken }: HandOut, unseen: boolean): Promise<boolean> {
      const done = await putBack(database, sessionsToken, unseen);
      if (done) wake(item.environmentId);
      return done;
    },

    /** Merges metadata. Refuses: not_found, invalid_metadata. */
    async patchMetadata(ref: WorkRef, patch: Readonly<Record<string, string | null>>) {
      checkRef(ref);
      return patchMetadata(database, ref, patch);
    },

    /** One pass of the background's work, also for processes that run it on a schedule of their own. */
    sweep: () => upkeep.run(),

    /** True while another replica's enqueue would wake a poll that waits here. */
    isListening: () => listening(),

    /** Starts listening and sweeping. */
    start(): void {
      const listener = database.listen({
        onNotification(payload) {
          const [topic, sender] = payload.split(' ');
          if (sender !== origin) wakeHere(topic);
        },
        onListening() {
          wakeHere();
          hints.tellMissed();
        },
      });
      listening = listener.isListening;
      background.push(listener, upkeep.start(onFault));
    },

    /** Answers waiting polls with null and ends the background; verbs go on working until the database is closed. */
    stopWaiting: () => handOuts.close(),

    async close(): Promise<void> {
      handOuts.close();
      await Promise.all(background.map((part) => part.close()));
      await notifier.close();
      await Promise.all([sightings.flush(), refusals.flush()]);
    },
  });
}

export type Queue = ReturnType<typeof createQueue>;
