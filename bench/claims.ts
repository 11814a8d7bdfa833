import { sql } from 'kysely';
import { createEnvironment } from '../src/control/environments.ts';
import { createQueue, type Queue } from '../src/create-queue.ts';
import { type Database, openDatabase } from '../src/db/connect.ts';
import { migrate } from '../src/db/migrate.ts';
import { startPostgres } from '../test/support/postgres.ts';
import { digitsOf } from './support/figures.ts';
import { circumstances } from './support/machine.ts';

/**
 * The process lane: claims and completions a second on one and on eight connections, and what a claim costs with 100 and with
 * 200,000 items queued. On a Postgres of its own, with default durability. `npm run bench:claims`.
 */
const ROUNDS = 5;
const CYCLES_PER_ROUND = 1_500;
const CONNECTIONS = [1, 8];
const BACKLOGS = [100, 200_000];
const CLAIMS_PER_ROUND = 50;
const BATCH = 1_000;
const TTL = { ttlSeconds: 60 };

const postgres = await startPostgres();
try {
  for (const line of circumstances()) console.log(line);
  console.log(`medians of ${ROUNDS} rounds, lowest and highest:`);
  for (const connections of CONNECTIONS) {
    await using place = await open(connections);
    const perSecond: number[] = [];
    await cycles(place, connections, CYCLES_PER_ROUND / 5); // warm up
    for (let round = 0; round < ROUNDS; round++) perSecond.push(await cycles(place, connections, CYCLES_PER_ROUND));
    console.log(`claim + complete, ${connections} connections: ${digitsOf(perSecond)} cycles/s`);
  }
  await using place = await open(1);
  let queued = 0;
  for (const backlog of BACKLOGS) {
    await fill(place, backlog - queued);
    queued = backlog;
    const [milliseconds, trips]: [number[], number[]] = [[], []];
    for (let round = 0; round < ROUNDS; round++) {
      for (const { claimMs, tripMs } of await claims(place, backlog)) {
        milliseconds.push(claimMs);
        trips.push(tripMs);
      }
    }
    console.log(
      `one claim, ${backlog} queued: ${digitsOf(milliseconds)} ms; select 1 meanwhile: ${digitsOf(trips)} ms`,
    );
  }
} finally {
  await postgres.stop();
}

type Place = { readonly queue: Queue; readonly database: Database; readonly environmentId: string };

async function open(poolConnectionsMax: number): Promise<Place & AsyncDisposable> {
  const schema = `bench_${Math.random().toString(36).slice(2)}`;
  const database = await openDatabase({ connectionString: postgres.url, schema, poolConnectionsMax });
  await migrate(database);
  const queue = createQueue({ database });
  const { id: environmentId } = await createEnvironment(database, { name: 'bench', type: 'cloud' });
  return {
    ...{ queue, database, environmentId },
    async [Symbol.asyncDispose]() {
      await queue.close();
      await database.close();
    },
  };
}

/** So many more items, told to the planner as autovacuum would. */
async function fill({ queue, database, environmentId }: Place, count: number): Promise<void> {
  const prefix = performance.now();
  for (let from = 0; from < count; from += BATCH) {
    const requests = Array.from({ length: Math.min(BATCH, count - from) }, (_, n) => ({
      environmentId,
      sessionId: `${prefix}-${from + n}`,
      kind: 'model_turn' as const,
    }));
    await queue.enqueueAll(requests);
  }
  await database.rows(sql`vacuum analyze ${database.names.workItems}`);
}

/** Claims and completes so many, and answers how many a second. */
async function cycles(place: Place, connections: number, count: number): Promise<number> {
  await fill(place, count);
  const { queue } = place;
  const start = performance.now();
  let done = 0;
  await Promise.all(
    Array.from({ length: connections }, async () => {
      for (
        let item = await queue.claim('model_turn', TTL);
        item !== null;
        item = await queue.claim('model_turn', TTL)
      ) {
        await queue.complete(item.lease);
        done++;
      }
    }),
  );
  if (done !== count) throw new Error(`${done} of ${count} were claimed`);
  return count / ((performance.now() - start) / 1_000);
}

/** What single claims take; each is given back, so that the backlog stays. Beside them what a statement takes that does nothing. */
async function claims({ queue, database }: Place, backlog: number): Promise<{ claimMs: number; tripMs: number }[]> {
  const times: { claimMs: number; tripMs: number }[] = [];
  for (let n = 0; n < CLAIMS_PER_ROUND; n++) {
    const start = performance.now();
    await database.rows(sql`select 1`);
    const between = performance.now();
    const item = await queue.claim('model_turn', TTL);
    times.push({ claimMs: performance.now() - between, tripMs: between - start });
    if (item === null) throw new Error(`nothing to claim of ${backlog}`);
    await queue.requeue(item.lease);
  }
  return times;
}
