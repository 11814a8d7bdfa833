import { createCallers } from '../src/control/credentials.ts';
import { createQueue } from '../src/create-queue.ts';
import { type Database, openDatabase } from '../src/db/connect.ts';
import { migrate } from '../src/db/migrate.ts';
import { buildApp } from '../src/http/app.ts';
import { STATEMENTS } from '../test/support/gates.ts';
import { caller } from '../test/support/harness.ts';
import { inLines, manyKeys, whoPath } from '../test/support/many-keys.ts';
import { startPostgres } from '../test/support/postgres.ts';
import { percentileOf } from './support/figures.ts';
import { OPERATOR_KEY } from './support/servers.ts';
import { pause } from './support/waiting.ts';

/**
 * From the answer to a revocation on one replica to the first 401 on the other, with all keys in use there, and what knowing keys
 * costs the database meanwhile: `npm run bench:revocation`. Starts a Postgres of its own.
 */
const KEYS = 10_000;
const REVOCATIONS = 200;
/** Revocations under way at once, none in step with another. */
const LINES = 4;
/** Lines of requests on the other replica, by all keys in turn. */
const LOAD_LINES = 4;
const DELAY_MS_MAX = 10_000;

/** Counts a database's statements by what they are for. */
function counting(database: Database) {
  const counts = { changes: 0, 'look-ups': 0, other: 0 };
  const kindOf = (text: string) =>
    STATEMENTS.changedKeys.test(text) ? 'changes' : STATEMENTS.findKey.test(text) ? 'look-ups' : 'other';
  const rows: Database['rows'] = (statement, transaction) => {
    counts[kindOf(statement.compile(database.kysely).sql)]++;
    return database.rows(statement, transaction);
  };
  return { database: { ...database, rows }, counts };
}

/** A server on a database of its own connections. */
async function startReplica(connectionString: string) {
  const opened = await openDatabase({ connectionString });
  await migrate(opened);
  const { database, counts } = counting(opened);
  const queue = createQueue({ database });
  const callers = createCallers({ database, operatorKey: OPERATOR_KEY });
  const app = buildApp({ queue, database, callers, publicUrl: () => '' });
  const call = caller(await app.listen({ host: '127.0.0.1', port: 0 }));
  const close = async () => {
    app.server.closeAllConnections();
    await app.close();
    await callers.close();
    await queue.close();
    await opened.close();
  };
  return { database, counts, call, close };
}

const postgres = await startPostgres();
try {
  const here = await startReplica(postgres.url);
  const there = await startReplica(postgres.url);
  const keys = await manyKeys(here.database, KEYS);
  const statusOf = async (key: (typeof keys)[number]) =>
    (await there.call('GET', whoPath(key), { as: key.key })).status;
  await inLines(keys, 16, async (key) => {
    if ((await statusOf(key)) !== 403) throw new Error('a key is not known');
  });

  const revoked = keys.slice(0, REVOCATIONS);
  const used = keys.slice(REVOCATIONS);
  let [running, requests] = [true, 0];
  const load = inLines(
    (function* () {
      while (running) yield* used;
    })(),
    LOAD_LINES,
    async (key) => {
      if (!running) return;
      if ((await statusOf(key)) !== 403) throw new Error('a key that was not revoked is refused');
      requests++;
    },
  );
  const before = { ...there.counts };
  const beganAt = performance.now();
  const delays: number[] = [];
  await inLines(revoked, LINES, async (key) => {
    await pause(Math.random() * 400);
    if ((await statusOf(key)) !== 403) throw new Error('refused before it was revoked');
    const path = `/control/v1/environments/${key.environmentId}/keys/${key.id}`;
    const { status } = await here.call('DELETE', path, { as: OPERATOR_KEY });
    const answeredAt = performance.now();
    if (status !== 200) throw new Error(`revoking answered ${status}`);
    while ((await statusOf(key)) !== 401) {
      if (performance.now() - answeredAt > DELAY_MS_MAX) throw new Error('still not refused');
      await pause(2);
    }
    delays.push(performance.now() - answeredAt);
  });
  const seconds = (performance.now() - beganAt) / 1_000;
  running = false;
  const after = { ...there.counts };
  await load;

  const sorted = delays.toSorted((a, b) => a - b);
  const percentile = (p: number) => Math.round(percentileOf(sorted, p));
  const perSecond = (count: number) => Number((count / seconds).toFixed(1));
  console.log(
    `${KEYS} keys in use on the replica that is watched, ${perSecond(requests)} requests/s for ${seconds.toFixed(1)} s`,
  );
  console.table([
    { revocations: sorted.length, 'p50 ms': percentile(50), 'p99 ms': percentile(99), 'max ms': percentile(100) },
  ]);
  console.log('statements a second on that replica, for knowing keys:');
  console.table([
    {
      'what changed': perSecond(after.changes - before.changes),
      'look-ups (revoked and new keys)': perSecond(after['look-ups'] - before['look-ups']),
      'last uses': perSecond(after.other - before.other),
    },
  ]);
  await Promise.all([here.close(), there.close()]);
} finally {
  await postgres.stop();
}
