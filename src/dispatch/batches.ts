import { QueueError } from '../queue/errors.ts';
import { HELD, type Locking } from '../queue/sets.ts';

export type BatchOptions<Request, Outcome> = {
  /** One statement for a set in which each key stands once. HELD: somebody else has the row, and `skip` does not wait for it. */
  run(set: readonly Request[], locking: Locking): Promise<readonly (Outcome | QueueError | typeof HELD)[]>;
  keyOf(request: Request): string;
  /** Whether a statement that failed so was undone, and may be run again. */
  isDeadlock(error: unknown): boolean;
  /** In characters, where calls may be large: those of a set come to 524,288 at most, or it is one. */
  weightOf?(request: Request): number;
  sizeMax?: number;
  inFlightMax?: number;
  waitingMax?: number;
};

type Call<Request, Outcome> = {
  readonly request: Request;
  readonly weight: number;
  readonly resolve: (outcome: Outcome) => void;
  readonly reject: (error: unknown) => void;
};

const SIZE_MAX = 128;
/** Putting a statement together holds up everything else in the process. */
const WEIGHT_MAX = 524_288;
const IN_FLIGHT_MAX = 2;
const WAITING_MAX = 20_000;
/** Of calls that wait for a row that another transaction holds: each has a connection to itself for as long. */
const ALONE_IN_FLIGHT_MAX = 3;
const DEADLOCK_RETRIES_MAX = 3;

/**
 * Calls of one verb that arrive together share statements. Nobody waits for a batch to fill: it is what came while the one before ran, or in
 * the same turn of the event loop. A row that another transaction holds delays its own call alone, and so does one that fails.
 * Refuses: unavailable, past the bound of calls that wait.
 */
export function createBatches<Request, Outcome>(options: BatchOptions<Request, Outcome>) {
  const { run, keyOf, isDeadlock, weightOf = () => 0 } = options;
  const { sizeMax = SIZE_MAX, inFlightMax = IN_FLIGHT_MAX, waitingMax = WAITING_MAX } = options;
  type Waiting = Call<Request, Outcome>;
  let waiting: Waiting[] = [];
  let inFlight = 0;
  let isScheduled = false;
  const held: Waiting[] = [];
  let alone = 0;

  const schedule = (): void => {
    if (isScheduled || inFlight >= inFlightMax || waiting.length === 0) return;
    isScheduled = true;
    setImmediate(flush); // after all that arrived in this turn
  };

  function flush(): void {
    isScheduled = false;
    if (inFlight >= inFlightMax) return;
    const batch = new Map<string, Waiting>();
    const later: Waiting[] = [];
    let weight = 0;
    let isFull = false;
    for (const call of waiting) {
      const key = keyOf(call.request);
      weight += call.weight;
      isFull ||= batch.size >= sizeMax || (batch.size > 0 && weight > WEIGHT_MAX);
      if (isFull || batch.has(key)) later.push(call);
      else batch.set(key, call);
    }
    waiting = later;
    if (batch.size === 0) return;
    inFlight++;
    void serve([...batch.values()]).finally(() => {
      inFlight--;
      schedule();
    });
    schedule();
  }

  async function serve(calls: readonly Waiting[], retries = DEADLOCK_RETRIES_MAX): Promise<void> {
    try {
      const outcomes = await run(
        calls.map(({ request }) => request),
        'skip',
      );
      for (const [index, call] of calls.entries()) {
        const outcome = outcomes[index];
        if (outcome === HELD) held.push(call);
        else settle(call, outcome);
      }
    } catch (error) {
      if (isDeadlock(error) && retries > 0) return serve(calls, retries - 1);
      // What is wrong may be one call's: the others are not to fail with it.
      if (calls.length > 1 && !isUnavailable(error)) held.push(...calls);
      else for (const call of calls) call.reject(error);
    }
    serveAlone();
  }

  function serveAlone(): void {
    while (alone < ALONE_IN_FLIGHT_MAX) {
      const call = held.shift();
      if (call === undefined) return;
      alone++;
      run([call.request], 'wait')
        .then(([outcome]) => settle(call, outcome === HELD ? undefined : outcome), call.reject)
        .finally(() => {
          alone--;
          serveAlone();
        });
    }
  }

  function settle({ resolve, reject }: Waiting, outcome: Outcome | QueueError | undefined): void {
    if (outcome instanceof QueueError) reject(outcome);
    else if (outcome === undefined) reject(new Error('a call of a batch has no outcome'));
    else resolve(outcome);
  }

  return (request: Request): Promise<Outcome> => {
    if (waiting.length + held.length >= waitingMax) {
      return Promise.reject(new QueueError('unavailable', `${waitingMax} calls wait already, try again`));
    }
    return new Promise((resolve, reject) => {
      waiting.push({ request, weight: weightOf(request), resolve, reject });
      schedule();
    });
  };
}

const isUnavailable = (error: unknown): boolean =>
  error instanceof Error && 'code' in error && error.code === 'unavailable';
