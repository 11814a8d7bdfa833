import type { HandOut, Taker } from '../queue/poll.ts';

export type TakeRequest = Taker & {
  readonly environmentId: string;
  /** Takes only what has waited this long: those who share it stand in one line. */
  readonly minQueuedAgeMs: number;
  /** Wait this long for work to come; undefined looks once. */
  readonly blockMs: number | undefined;
  /** Aborts when whoever asked has gone. */
  readonly signal?: AbortSignal | undefined;
};

export type Waiter = {
  readonly request: TakeRequest;
  readonly settle: (outcome: HandOut | null) => void;
  readonly fail: (error: unknown) => void;
  /** False for a poll that does not wait, and once a waiting one's time is up: the next look is its last. */
  patient: boolean;
  /** A look that began after this waiter came has found nothing for it. */
  looked: boolean;
  inLook: boolean;
  gone: boolean;
};

export type LineRef = Pick<TakeRequest, 'environmentId' | 'minQueuedAgeMs'>;

export type Line = LineRef & {
  readonly waiters: Set<Waiter>;
  /** Those that no look has been for yet. */
  readonly fresh: Set<Waiter>;
  woken: boolean;
  looking: boolean;
  /** The last look found less than was asked for, and nothing has woken the line since. */
  isEmpty: boolean;
  /** Until then nothing that is held can lapse: looks need not read it all. Undefined before the first look. */
  nothingLapsesBefore: number | undefined;
  /** How many takers the next look is for: few where there was little. */
  takersNext: number;
  /** When the last one left. */
  leftAt: number;
  /** Set when a look failed: what woke it is looked for again. */
  again: NodeJS.Timeout | undefined;
};

/** A line that nobody stands in is remembered for this long: idle workers come back every one to four seconds. */
const LINE_KEPT_MS = 10_000;

/** The lines that are known, by environment and least age of what is taken. */
export function createLines(takersFirst: number, now: () => number) {
  const byEnvironment = new Map<string, Line[]>();

  const find = ({ environmentId, minQueuedAgeMs }: LineRef): Line | undefined =>
    byEnvironment.get(environmentId)?.find((line) => line.minQueuedAgeMs === minQueuedAgeMs);

  const forget = (line: Line): void => {
    const others = byEnvironment.get(line.environmentId)?.filter((other) => other !== line) ?? [];
    if (others.length === 0) byEnvironment.delete(line.environmentId);
    else byEnvironment.set(line.environmentId, others);
  };

  const all = (): Line[] => [...byEnvironment.values()].flat();

  return {
    find,
    forget,
    all,

    /** The line of these takers, a new one if there is none. */
    of({ environmentId, minQueuedAgeMs }: LineRef): Line {
      const known = find({ environmentId, minQueuedAgeMs });
      if (known !== undefined) return known;
      const line: Line = {
        ...{ environmentId, minQueuedAgeMs, waiters: new Set(), fresh: new Set(), takersNext: takersFirst },
        ...{
          woken: false,
          looking: false,
          isEmpty: false,
          leftAt: 0,
          nothingLapsesBefore: undefined,
          again: undefined,
        },
      };
      byEnvironment.set(environmentId, [...(byEnvironment.get(environmentId) ?? []), line]);
      return line;
    },

    /** Of every age, those of one environment. */
    ofEnvironment: (environmentId: string): readonly Line[] => byEnvironment.get(environmentId) ?? [],

    /** Those that somebody stood in lately; the others are forgotten. */
    kept(): readonly Line[] {
      for (const line of all()) {
        if (line.waiters.size === 0 && !line.looking && now() - line.leftAt > LINE_KEPT_MS) forget(line);
      }
      return all();
    },
  };
}
