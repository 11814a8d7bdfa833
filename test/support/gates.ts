import { sql } from 'kysely';
import type { Database } from '../../src/db/connect.ts';
import type { Server } from './harness.ts';

/** The statements a test watches, told by what only they contain. */
export const STATEMENTS = {
  look: /taker as materialized/,
  sweep: /with turn as[\s\S]*abandoned as/,
  lookOver: /as "isToSweep"/,
  sightings: /insert into "\w+"\."worker_sightings"/,
  findKey: /"remainingMs"/,
  changedKeys: /statement_timestamp\(\)/,
  refusals: /insert into "\w+"\."refusals"/,
};

export type Watched = {
  /** The same database, its watched statements counted and held. */
  readonly database: Database;
  /** Watched statements that were begun, and those whose answer came from the database. */
  readonly begun: () => number;
  readonly ended: () => number;
  /** From now on the answers of watched statements are kept back until the gate is opened. */
  close(): void;
  open(): void;
  /** From now on watched statements fail with this error; undefined: no longer. */
  fail(error: Error | undefined): void;
};

/** Watches one kind of statement, so that a test knows when it ran and decides when its answer arrives. */
export function watch(database: Database, statements: RegExp): Watched {
  let [begun, ended] = [0, 0];
  let gate = Promise.withResolvers<void>();
  let failure: Error | undefined;
  gate.resolve();
  const through = (watched: Database): Database => ({
    ...watched,
    async rows(statement, transaction) {
      if (!statements.test(statement.compile(watched.kysely).sql)) return watched.rows(statement, transaction);
      begun++;
      if (failure !== undefined) throw failure;
      const answer = await watched.rows(statement, transaction);
      ended++;
      await gate.promise;
      return answer;
    },
  });
  return {
    database: { ...through(database), aside: through(database.aside) },
    begun: () => begun,
    ended: () => ended,
    close() {
      gate = Promise.withResolvers();
    },
    open: () => gate.resolve(),
    fail(error) {
      failure = error;
    },
  };
}

/** Counts the requests whose client went away before the answer was written. */
export function countGone({ app }: Server): () => number {
  let gone = 0;
  app.server.on('request', (_request, response) => {
    response.once('close', () => {
      if (!response.writableFinished) gone++;
    });
  });
  return () => gone;
}

/** What a promise has come to so far. */
export function watchPromise<T>(promise: Promise<T>) {
  const seen: { settled: boolean; value?: T; error?: unknown } = { settled: false };
  promise.then(
    (value) => Object.assign(seen, { settled: true, value }),
    (error) => Object.assign(seen, { settled: true, error }),
  );
  return seen;
}

/** Lets everything that is due happen first, timers of no delay included. */
export const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

/** Kills the backends whose present or last statement is like this; answers how many. */
export async function killBackends(database: Database, statement: string): Promise<number> {
  const rows = await database.rows(
    sql`select pg_terminate_backend(pid) from pg_stat_activity where query like ${statement} and pid <> pg_backend_pid()`,
  );
  return rows.length;
}
