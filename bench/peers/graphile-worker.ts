import { EventEmitter } from 'node:events';
import { Logger, makeWorkerUtils, run, type WorkerEvents } from 'graphile-worker';
import { BATCH, connectionString, serve } from './serve.ts';

/** graphile-worker's runner as it is by default: each of its workers takes a job at a time. Each has a connection to itself. */
const TASK = 'bench';
const shared = { connectionString: connectionString(), logger: new Logger(() => () => {}) };

serve({
  async prepare(_clients, jobs) {
    const utils = await makeWorkerUtils(shared);
    await utils.migrate();
    for (let left = jobs; left > 0; left -= BATCH) {
      const batch = Array.from({ length: Math.min(BATCH, left) }, (_, n) => ({ identifier: TASK, payload: { n } }));
      await utils.addJobs(batch);
    }
    await utils.release();
  },
  async run(clients, jobs) {
    const events = new EventEmitter() as WorkerEvents;
    const { promise: allDone, resolve } = Promise.withResolvers<void>();
    let [done, beganAt] = [0, 0];
    // From the first job's end on: it starts with connections to open, which is not what is compared.
    events.on('job:complete', () => {
      if (done === 0) beganAt = performance.now();
      if (++done === jobs) resolve();
    });
    events.on('job:error', ({ error }) => {
      throw error;
    });
    const taskList = { [TASK]() {} };
    const settings = { concurrency: clients, maxPoolSize: clients, noHandleSignals: true };
    const runner = await run({ ...shared, ...settings, events, taskList });
    await allDone;
    const seconds = (performance.now() - beganAt) / 1_000;
    await runner.stop();
    return (seconds * jobs) / (jobs - 1);
  },
});
