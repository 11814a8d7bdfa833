import { QueueError } from '../queue/errors.ts';
import type { HandOut, Look, Taker } from '../queue/poll.ts';
import { createLines, type Line, type LineRef, type TakeRequest, type Waiter } from './lines.ts';
import { createSlots } from './slots.ts';

type Found = Pick<Look, 'handOuts' | 'setAside' | 'lapsesInMs'>;

export type HandOutsOptions = {
  /** One look at the database for a line of takers. `isDeep`: also for what is held and has lapsed. */
  look(environmentId: string, minQueuedAgeMs: number, takers: readonly Taker[], isDeep: boolean): Promise<Found>;
  /** Undoes a hand-out that reached nobody, and wakes the environment's lines. */
  putBack(handOut: HandOut): Promise<void>;
  /**
   * Whether somebody looks over all lines about once a second (`lines`, `wakeLine`): what was found empty then stays so until a wake-up,
   * and polls that may wait need no look of their own (design §5).
   */
  isWatched?(): boolean;
  takersPerLookMax?: number;
  waitersMax?: number;
  now?(): number;
};

const TAKERS_PER_LOOK_MAX = 64;
const TAKERS_PER_LOOK_FIRST = 8;
const LOOK_AGAIN_MS = 100;
/** Over all lines: the rest wait their turn, one look each, so that no environment has the database to itself. */
const LOOKS_IN_FLIGHT_MAX = 6;
export const WAITERS_MAX = 50_000;
/** No lease of what is held is given for less (contract §7). */
const LEASE_MS_MIN = 1_000;
/**
 * Who waits for work, by environment and least age of what is taken, in order of arrival. One look at a time serves a whole line: the takers in front get what
 * it finds, and when it finds less than was asked for, everybody who came before it began has been looked for. A waiter is in
 * line before the look begins, so an enqueue is never missed (design §5).
 */
export function createHandOuts({ look, putBack, isWatched = () => false, ...options }: HandOutsOptions) {
  const { takersPerLookMax = TAKERS_PER_LOOK_MAX, waitersMax = WAITERS_MAX, now = () => performance.now() } = options;
  const takersFirst = Math.min(TAKERS_PER_LOOK_FIRST, takersPerLookMax);
  const lines = createLines(takersFirst, now);
  let waiting = 0;
  let closed = false;
  const inTurn = createSlots(LOOKS_IN_FLIGHT_MAX);

  async function serve(line: Line): Promise<void> {
    if (line.looking) return;
    line.looking = true;
    while (line.waiters.size > 0 && (line.woken || line.fresh.size > 0)) {
      await inTurn(async () => {
        if (line.waiters.size === 0) return; // all left while it was waited for
        line.woken = false;
        await lookOnce(line);
      });
    }
    line.looking = false;
    forgetIfEmpty(line);
  }

  function forgetIfEmpty(line: Line): void {
    if (line.looking || line.waiters.size > 0) return;
    clearTimeout(line.again);
    if (line.nothingLapsesBefore === undefined || !isWatched()) lines.forget(line);
  }

  function wakeLine(line: Line): void {
    line.woken = true;
    line.isEmpty = false;
    if (line.waiters.size > 0) void serve(line);
    else forgetIfEmpty(line);
  }

  async function lookOnce(line: Line): Promise<void> {
    const beganAt = now();
    const known = line.nothingLapsesBefore;
    const isDeep = !isWatched() || beganAt >= (known ?? 0);
    const takers = [...line.waiters.values().take(line.takersNext)];
    const before = [...line.fresh];
    for (const waiter of takers) waiter.inLook = true;
    let found: Found;
    try {
      found = await look(
        line.environmentId,
        line.minQueuedAgeMs,
        takers.map((waiter) => waiter.request),
        isDeep,
      );
    } catch (error) {
      for (const waiter of takers) waiter.inLook = false;
      // Those who have been looked for go on waiting; nobody is told "nothing" without a look.
      for (const waiter of new Set([...before, ...takers.filter((taker) => !taker.patient)])) waiter.fail(error);
      clearTimeout(line.again);
      line.again = setTimeout(() => wakeLine(line), LOOK_AGAIN_MS);
      return;
    }
    if (isDeep && line.nothingLapsesBefore === known) {
      // Where as much was found as was asked for there may be more of it. What others take or renew meanwhile, they hold for a while yet.
      const isAll = found.setAside === 0 && found.handOuts.some((handOut) => handOut === null);
      line.nothingLapsesBefore = isAll ? beganAt + Math.min(found.lapsesInMs ?? LEASE_MS_MIN, LEASE_MS_MIN) : beganAt;
    }
    const unwanted: HandOut[] = [];
    for (const [index, waiter] of takers.entries()) {
      waiter.inLook = false;
      const handOut = found.handOuts[index] ?? null;
      if (handOut === null) continue;
      if (waiter.gone) unwanted.push(handOut);
      else waiter.settle(handOut);
    }
    if (unwanted.length > 0) {
      // Nobody is told "nothing" meanwhile: the next look is for those who are still in line.
      await Promise.all(unwanted.map((handOut) => putBack(handOut).catch(() => {}))); // it lapses all the same
      line.woken = true;
      return;
    }
    // What was set aside stood before other work, and may have had a follow-up: that look was not the last word.
    if (found.setAside > 0) {
      line.woken = true;
      // Many may stand there: a poll that has waited for its time goes, one that may not wait is looked for to the end.
      for (const waiter of line.waiters.values().filter(isOver)) waiter.settle(null);
    } else if (found.handOuts.some((handOut) => handOut === null)) {
      line.isEmpty = !line.woken;
      line.takersNext = takersFirst;
      for (const waiter of before) {
        waiter.looked = true;
        line.fresh.delete(waiter);
      }
      for (const waiter of [...before, ...takers]) if (!waiter.patient) waiter.settle(null);
    } else {
      line.isEmpty = false; // there may be more than was asked for
      line.takersNext = Math.min(line.takersNext * 2, takersPerLookMax);
      if (line.waiters.size > 0) line.woken = true;
    }
  }

  return {
    /** Waits for an item, at most `blockMs`. Null: a look that began after the call found nothing, or the time is up. */
    take(request: TakeRequest): Promise<HandOut | null> {
      if (closed && request.blockMs !== undefined) return Promise.resolve(null);
      if (waiting >= waitersMax) {
        return Promise.reject(new QueueError('unavailable', `${waitersMax} polls wait here already, try again`));
      }
      return new Promise((resolve, reject) => {
        const line = lines.of(request);
        const isKnownEmpty = request.blockMs !== undefined && line.isEmpty && !line.woken && isWatched();
        waiting++;
        const leave = () => {
          clearTimeout(timer);
          request.signal?.removeEventListener('abort', abort);
          if (line.waiters.delete(waiter)) waiting--;
          line.fresh.delete(waiter);
          line.leftAt = now();
          forgetIfEmpty(line);
        };
        const waiter: Waiter = {
          request,
          settle(outcome) {
            leave();
            resolve(outcome);
          },
          fail(error) {
            leave();
            reject(error);
          },
          patient: request.blockMs !== undefined,
          looked: isKnownEmpty,
          inLook: false,
          gone: false,
        };
        const abort = () => {
          waiter.gone = true;
          waiter.settle(null);
        };
        const timer =
          request.blockMs === undefined ? undefined : setTimeout(() => losePatience(waiter), request.blockMs);
        line.waiters.add(waiter);
        if (!isKnownEmpty) line.fresh.add(waiter);
        if (request.signal?.aborted) abort();
        else request.signal?.addEventListener('abort', abort, { once: true });
        void serve(line);
      });
    },

    /** Every line that is known, for somebody to look over; those that nobody has stood in for long are forgotten. */
    lines: (): readonly LineRef[] => lines.kept(),

    /** There is something for this line: look, also for what has lapsed. */
    wakeLine(ref: LineRef): void {
      const line = lines.find(ref);
      if (line === undefined) return;
      line.nothingLapsesBefore = now();
      wakeLine(line);
    },

    /** There may be work: look again for those who wait, `isDeep`: also for what has lapsed. Without an environment: everywhere. */
    wake(environmentId?: string, isDeep = false): void {
      for (const line of environmentId === undefined ? lines.all() : lines.ofEnvironment(environmentId)) {
        if (isDeep) line.nothingLapsesBefore = now();
        wakeLine(line);
      }
    },

    /** Ends all waiting: blocked polls are answered null, at once or after the look that they are in. */
    close(): void {
      closed = true;
      for (const line of lines.all()) for (const waiter of [...line.waiters]) losePatience(waiter);
    },
  };
}

export type HandOuts = ReturnType<typeof createHandOuts>;

function losePatience(waiter: Waiter): void {
  waiter.patient = false;
  if (waiter.looked && !waiter.inLook) waiter.settle(null);
}

/** Its time is up, and it is in no look that might still find something; a poll that was not to wait has no time. */
const isOver = ({ patient, inLook, request }: Waiter): boolean => !patient && !inLook && request.blockMs !== undefined;
