import { PgBoss } from 'pg-boss';
import { BATCH, connectionString, serve } from './serve.ts';

/** pg-boss in its single-job mode: fetch one, complete it. Each consumer has a connection to itself. */
const QUEUE = 'bench';

let boss: PgBoss | undefined;

serve({
  async prepare(clients, jobs) {
    boss = new PgBoss({ connectionString: connectionString(), max: clients, supervise: false, schedule: false });
    boss.on('error', (error) => {
      throw error;
    });
    await boss.start();
    await boss.createQueue(QUEUE);
    for (let left = jobs; left > 0; left -= BATCH) {
      await boss.insert(
        QUEUE,
        Array.from({ length: Math.min(BATCH, left) }, (_, n) => ({ data: { n } })),
      );
    }
  },
  async run(clients, jobs) {
    let [left, done] = [jobs, 0];
    const consume = async () => {
      while (left > 0) {
        left--;
        const [job] = (await boss?.fetch(QUEUE, { batchSize: 1 })) ?? [];
        if (job === undefined) {
          left++;
          continue;
        }
        await boss?.complete(QUEUE, job.id);
        done++;
      }
    };
    const beganAt = performance.now();
    await Promise.all(Array.from({ length: clients }, consume));
    const seconds = (performance.now() - beganAt) / 1_000;
    if (done !== jobs) throw new Error(`${done} of ${jobs} jobs`);
    await boss?.stop({ graceful: false });
    return seconds;
  },
});
