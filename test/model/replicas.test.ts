import fc from 'fast-check';
import pg from 'pg';
import t from 'tap';
import { createEnvironment } from '../../src/control/environments.ts';
import { issueKey } from '../../src/control/keys.ts';
import { databaseUrl, testDatabase } from '../support/harness.ts';
import { check } from './replicas/check.ts';
import { drain } from './replicas/drain.ts';
import { type History, histories } from './replicas/plan.ts';
import { playBurst } from './replicas/play.ts';
import { World } from './replicas/world.ts';

/**
 * `REPLICA_HISTORIES=5000 npm test -- test/model/replicas.test.ts` runs more, `REPLICA_SEED=…` the same plans again, and with
 * `REPLICA_PATH=…` only the one that failed; what its lanes meet is chance.
 */
const HISTORIES = Number(process.env.REPLICA_HISTORIES ?? 250);
const SEED = process.env.REPLICA_SEED === undefined ? undefined : Number(process.env.REPLICA_SEED);
const PATH = process.env.REPLICA_PATH;

t.setTimeout(60_000 + HISTORIES * 1_000);

t.test(
  'calls at two replicas at once, with all that can break, do what the contract says, and lose nothing',
  async (t) => {
    const database = await testDatabase(t);
    const { schema } = database;
    const { id: environmentId } = await createEnvironment(database, { name: 'two replicas', type: 'self_hosted' });
    const { key: environmentKey } = await issueKey(database, { environmentId, name: 'workers' });
    const connection = { connectionString: databaseUrl(), application_name: 'test' };
    const pool = new pg.Pool({ ...connection, max: 8 });
    const observer = new pg.Client(connection);
    await observer.connect();
    const world = await World.open({ schema, environmentId, environmentKey }, pool, observer);
    t.teardown(async () => {
      await world.close();
      await observer.end();
      await pool.end();
    });

    let calls = 0;
    const result = await fc.check(
      fc.asyncProperty(histories, async (history: History) => {
        await world.reset();
        for (const burst of history) await playBurst(world, burst);
        await drain(world);
        await check(world);
        calls += world.calls.length;
      }),
      // The same plan may meet something else the next time: nothing is shrunk.
      {
        ...{ numRuns: PATH === undefined ? HISTORIES : 1, endOnFailure: true },
        ...(SEED === undefined ? {} : { seed: SEED }),
        ...(PATH === undefined ? {} : { path: PATH }),
      },
    );

    t.comment(`${result.numRuns} histories, ${calls} calls, seed ${result.seed}`);
    for (const [what, times] of [...world.met].sort()) t.comment(`${times} × ${what}`);
    if (result.failed) {
      t.comment(
        `REPLICA_SEED=${result.seed} REPLICA_PATH=${result.counterexamplePath} fails: ${JSON.stringify(result.counterexample)}`,
      );
      for (const line of String(result.errorInstance).split('\n')) t.comment(line);
    }
    t.notOk(result.failed, 'no violation');
  },
);
