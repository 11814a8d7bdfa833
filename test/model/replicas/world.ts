import type pg from 'pg';
import { turn } from '../../support/gates.ts';
import { OPERATOR_KEY, until } from '../../support/harness.ts';
import type { Asked, Call, CallOf, Outcome } from './calls.ts';
import { Clock } from './clock.ts';
import { Log } from './log.ts';
import type { Lock, Owner, Session, Which } from './plan.ts';
import { type Replica, startReplica } from './replica.ts';

export type Said = Pick<CallOf<'report'>, 'status' | 'result' | 'error' | 'isFinal'>;

/** What a client knows of a hand-out, or of what it enqueued. */
export type Holding = {
  readonly id: string;
  readonly sessionsToken: string | undefined;
  /** The last token that it heard of, and the one that this replaced. */
  token: string | null;
  replaced: string | null;
  /** The last that it said of the item. */
  said: Said | undefined;
};

export type Place = {
  readonly schema: string;
  readonly environmentId: string;
  readonly environmentKey: string;
  readonly operatorKey: string;
};

const IDLE_MS_MAX = 20_000;

/** Two replicas over one database, those who call them, and what has happened. */
export class World {
  readonly place: Place;
  readonly clock = new Clock();
  readonly log: Log;
  /** The test's own connections. */
  readonly pool: pg.Pool;
  readonly replicas: [Replica, Replica];
  readonly calls: Call[] = [];
  readonly holdings = new Map<Session, Holding[]>();
  /** The tokens that owners of locks were told, by name and owner. */
  readonly tokens = new Map<`${Lock} ${Owner}`, number[]>();
  /** The replicas that crashed or lost their connections to the database in this history: only they may answer 503. */
  readonly broken = new Set<string>();
  /** How often each fault came about, and each cell of the state table was met, in all histories. */
  readonly met = new Map<string, number>();
  /** When other transactions had rows, by the ticks. */
  readonly holds: { sessions: readonly string[]; begun: number; ended: number }[] = [];
  /** What died in this history, and is being taken away. */
  private readonly dead: Replica[] = [];
  private started: number;
  private count = 0;

  private constructor(place: Place, pool: pg.Pool, observer: pg.Client, replicas: [Replica, Replica]) {
    this.place = place;
    this.pool = pool;
    this.log = new Log(observer, place.schema);
    this.replicas = replicas;
    this.started = replicas.length;
  }

  static async open(place: Omit<Place, 'operatorKey'>, pool: pg.Pool, observer: pg.Client): Promise<World> {
    const replicas = await Promise.all([
      startReplica(place.schema, 'replica 1'),
      startReplica(place.schema, 'replica 2'),
    ]);
    const world = new World({ ...place, operatorKey: OPERATOR_KEY }, pool, observer, replicas);
    await world.log.install();
    return world;
  }

  meet(what: string): void {
    this.met.set(what, (this.met.get(what) ?? 0) + 1);
  }

  /** Another number than any before in this history. */
  next = (): number => ++this.count;

  async record(asked: Asked, by: string, act: () => Promise<Outcome>): Promise<Call> {
    const call: Call = {
      ...asked,
      ...{ n: this.calls.length + 1, by, begun: this.clock.tick(), ended: Number.POSITIVE_INFINITY },
      ...{ notBefore: this.clock.now().least, notAfter: Number.POSITIVE_INFINITY, elapsedMs: 0 },
      outcome: { kind: 'unknown', why: 'left' },
    };
    this.calls.push(call);
    const since = performance.now();
    call.outcome = await act();
    call.elapsedMs = performance.now() - since;
    if (call.outcome.kind === 'answered') {
      call.notAfter = this.clock.now().most;
      call.ended = this.clock.tick();
    } else {
      this.meet(`a call whose outcome is not known: ${call.outcome.why}`);
    }
    return call;
  }

  holdingOf(session: Session, before = false): Holding | undefined {
    const known = this.holdings.get(session);
    return known?.at(before ? -2 : -1) ?? known?.at(-1);
  }

  /** Clients learn of an id by a poll, or by enqueueing. */
  learn(session: Session, id: string, sessionsToken?: string): Holding {
    const known = this.holdings.get(session) ?? [];
    this.holdings.set(session, known);
    const before = known.find((holding) => holding.id === id);
    if (before !== undefined && sessionsToken === undefined) return before;
    const holding: Holding = { id, sessionsToken, token: null, replaced: null, said: undefined };
    known.push(holding);
    return holding;
  }

  async crash(which: Which): Promise<void> {
    const replica = this.replicas[which];
    this.broken.add(replica.name);
    this.dead.push(replica);
    replica.crash();
    this.meet('a crash');
    this.replicas[which] = await startReplica(this.place.schema, `replica ${++this.started}`);
  }

  /** Until nothing is under way any more: no request, no statement, also none that a dead replica left behind. */
  async quiesce(): Promise<void> {
    let idle = 0;
    await until(
      'the replicas to be idle',
      async () => {
        for (idle = 0; idle < 3 && this.replicas.every((replica) => replica.inFlight() === 0); idle++) await turn();
        return idle === 3;
      },
      IDLE_MS_MAX,
    );
    const gone = this.dead.map(({ name }) => name);
    // Whoever lost its connection is rolled back only once the database has noticed.
    await until(
      'the statements of broken connections to end',
      async () => {
        if (this.broken.size === 0) return true;
        const { rows } = await this.pool.query(
          `select from pg_stat_activity
          where application_name = any($1) or (application_name = any($2) and state is distinct from 'idle')`,
          [gone, [...this.broken]],
        );
        return rows.length === 0;
      },
      IDLE_MS_MAX,
    );
    // What has not been applied by now will not be.
    for (const call of this.calls) call.ended = Math.min(call.ended, this.clock.tick());
  }

  async reset(): Promise<void> {
    await Promise.all(this.dead.splice(0).map((replica) => replica.close()));
    this.calls.length = 0;
    this.holds.length = 0;
    this.holdings.clear();
    this.tokens.clear();
    this.broken.clear();
    for (const { undelivered, begun, left, ended } of this.replicas) {
      for (const known of [undelivered, begun, left, ended]) known.clear();
    }
    await this.log.reset(this.clock);
  }

  async close(): Promise<void> {
    await Promise.all([...this.dead, ...this.replicas].map((replica) => replica.close()));
  }
}
