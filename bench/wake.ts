import { createEnvironment } from '../src/control/environments.ts';
import { createQueue } from '../src/create-queue.ts';
import { openDatabase } from '../src/db/connect.ts';
import { migrate } from '../src/db/migrate.ts';
import { startPostgres } from '../test/support/postgres.ts';

/**
 * From an enqueue on one replica to the answer of a poll that waits on another: `node bench/wake.ts`. Starts a Postgres of its
 * own. The enqueue's own commit is part of the time.
 */
const ROUNDS = 300;
const WARM_UP_ROUNDS = 20;
/** Past the debounce of notifications, and never in step with it. */
const pauseMs = () => 25 + Math.random() * 25;

const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

/** p50, p99 and the longest. */
function summary(times: number[]): string {
  const sorted = times.toSorted((a, b) => a - b);
  const percentile = (p: number) => (sorted[Math.ceil((sorted.length * p) / 100) - 1] ?? Number.NaN).toFixed(1);
  return `p50 ${percentile(50)} p99 ${percentile(99)} max ${percentile(100)} ms`;
}

const postgres = await startPostgres();
const databases = await Promise.all([1, 2].map(() => openDatabase({ connectionString: postgres.url })));
const [here, there] = databases;
try {
  if (here === undefined || there === undefined) throw new Error('no databases');
  await migrate(here);
  const { id: environmentId } = await createEnvironment(here, { name: 'bench', type: 'self_hosted' });
  const [waiting, enqueuing] = [createQueue({ database: here }), createQueue({ database: there })];
  waiting.start();
  while (!waiting.isListening()) await pause(5);

  for (const { name, pauses } of [
    { name: 'spaced', pauses: true },
    { name: 'back to back', pauses: false },
  ]) {
    const times: number[] = [];
    const enqueueTimes: number[] = [];
    let missed = 0;
    for (let round = 0; round < ROUNDS + WARM_UP_ROUNDS; round++) {
      const poll = waiting.poll({ environmentId, blockMs: 999 });
      await pause(pauses ? pauseMs() : 3); // its look is over, it waits
      const sessionId = `${name}-${round}`;
      const start = performance.now();
      const { item } = await enqueuing.enqueue({ environmentId, sessionId });
      const enqueueMs = performance.now() - start;
      const handOut = await poll;
      const ms = performance.now() - start;
      // A poll that got anything else was not woken by this enqueue, and its time would say nothing.
      if (handOut !== null && handOut.item.sessionId !== sessionId) throw new Error(`got ${handOut.item.sessionId}`);
      // Else it lapses, and a later round's poll takes it at once instead of waiting.
      await waiting.stop([{ environmentId, id: item.id, force: true, reason: 'operator' }]);
      if (round < WARM_UP_ROUNDS) continue;
      if (handOut === null) missed++;
      else times.push(ms);
      enqueueTimes.push(enqueueMs);
    }
    console.log(
      `${name}: ${times.length} enqueues on another replica, to the answer ${summary(times)}, missed ${missed}; ` +
        `of it the enqueue itself ${summary(enqueueTimes)}`,
    );
  }
  await Promise.all([waiting.close(), enqueuing.close()]);
} finally {
  await Promise.all(databases.map((database) => database.close()));
  await postgres.stop();
}
