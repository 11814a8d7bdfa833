import { sql } from 'kysely';
import type { Test } from 'tap';
import {
  type CallerTransaction,
  type Claimed,
  createEnvironment,
  createQueue,
  createRunner,
  type Database,
  type Lease,
  type RunnerOptions,
  type WorkKind,
  type WorkStore,
} from '../../src/index.ts';
import { rowOf, testDatabase, until } from './harness.ts';

/** Long enough for nothing to be found by time alone. */
export const NEVER = { sweepIntervalMs: 3_600_000, backstopMs: 3_600_000 };

/** Renews each second, for the stall's sake, leases that are trusted for a minute: however busy the machine is. For work that is `gettingOn`. */
export const EAGER = { stallSeconds: 1 };

/** Work that says all the time that it gets on. */
export async function gettingOn<Result>(progress: () => void, work: () => Promise<Result>): Promise<Result> {
  const timer = setInterval(progress, 20);
  try {
    return await work();
  } finally {
    clearInterval(timer);
  }
}

export type Running = {
  /** Begins the shutdown. */
  stop(): void;
  /** What `run` came to. */
  readonly ended: Promise<void>;
  /** What it logged. */
  readonly logged: { readonly details: object; readonly message: string }[];
};

/** A runner that runs; at the end of the test it is stopped, if it was not before. */
export function startRunner<Transaction = CallerTransaction>(t: Test, options: RunnerOptions<Transaction>): Running {
  const logged: { details: object; message: string }[] = [];
  const log = (details: object, message: string) => void logged.push({ details, message });
  const stopping = new AbortController();
  const runner = createRunner({ logger: { info: log, warn: log, error: log }, graceSeconds: 0, ...options });
  const ended = runner.run(stopping.signal);
  t.teardown(async () => {
    stopping.abort();
    await ended;
  });
  return { stop: () => stopping.abort(), ended, logged };
}

/** A database with a queue, a cloud environment, and a table of results of the handlers' own. */
export async function processLane(t: Test, database?: Database) {
  const own = database ?? (await testDatabase(t));
  const queue = createQueue({ database: own });
  t.teardown(() => queue.close());
  const { id: environmentId } = await createEnvironment(own, { name: 'cloud', type: 'cloud' });
  const results = sql.table(`${own.schema}.results`);
  await own.rows(sql`create table ${results} (session_id text not null, note text not null)`);
  /** Writes a result where a settlement writes. */
  const write = async (transaction: CallerTransaction, { sessionId }: Claimed, note = 'done') =>
    void (await own.rows(sql`insert into ${results} values (${sessionId}, ${note})`, transaction));
  const written = async (): Promise<string[]> => {
    const rows = await own.rows(sql<{ text: string }>`
      select session_id || ' ' || note as text from ${results} order by 1`);
    return rows.map(({ text }) => text);
  };
  const enqueue = async (sessionId: string, kind: WorkKind = 'model_turn'): Promise<string> =>
    (await queue.enqueue({ environmentId, sessionId, kind })).item.id;
  const row = (id: string) => rowOf(own, id);
  const untilStopped = (id: string, reason = 'worker') =>
    until(`${id} to be stopped`, async () => {
      const { state, stop_reason: why } = await row(id);
      if (state === 'stopped' && why !== reason) throw new Error(`stopped as ${why}`);
      return state === 'stopped';
    });
  return { database: own, queue, environmentId, write, written, enqueue, row, untilStopped };
}

export const claimed = (n: number, more: Partial<Claimed> = {}): Claimed => {
  const lease: Lease = {
    seq: `${n}`,
    workerId: 'fake',
    handOut: 1,
    expiresAt: `${n}`,
    askedAtMs: performance.now(),
    ttlSeconds: 60,
  };
  return { id: `work_${n}`, kind: 'model_turn', lease, attempt: 1, isReclaimed: false, ...more } as Claimed;
};

/** A store without work, whose verbs a test replaces; what it does not is not expected to be called. */
export function fakeStore(verbs: Partial<WorkStore> = {}): WorkStore {
  const none = {
    onWork: () => () => {},
    claim: async () => null,
    expired: async () => [],
    ...verbs,
  } as Partial<WorkStore>;
  return new Proxy(none as WorkStore, {
    get(store, name) {
      const verb = store[name as keyof WorkStore];
      if (verb === undefined) throw new Error(`${String(name)} was not expected`);
      return verb;
    },
  });
}
