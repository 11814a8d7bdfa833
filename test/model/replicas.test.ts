import fc from 'fast-check';
import pg from 'pg';
import t from 'tap';
import { createEnvironment } from '../../src/control/environments.ts';
import { issueKey } from '../../src/control/keys.ts';
import { databaseUrl, testDatabase } from '../support/harness.ts';
import { MET } from './replicas/cells.ts';
import { check } from './replicas/check.ts';
import { drain } from './replicas/drain.ts';
import { histories } from './replicas/histories.ts';
import type { History } from './replicas/plan.ts';
import { playBurst } from './replicas/play.ts';
import { tell } from './replicas/story.ts';
import { World } from './replicas/world.ts';

/**
 * `REPLICA_HISTORIES=5000 npm test -- test/model/replicas.test.ts` runs more, `REPLICA_SEED=…` the same plans again, and with
 * `REPLICA_PATH=…` only the one that failed, so many times: what its lanes meet is chance.
 */
const HISTORIES = Number(process.env.REPLICA_HISTORIES ?? 200);
const SEED = process.env.REPLICA_SEED === undefined ? undefined : Number(process.env.REPLICA_SEED);
const PATH = process.env.REPLICA_PATH;

/** The plan that failed, again and again. */
const plans =
  PATH === undefined || SEED === undefined
    ? histories
    : fc.constantFrom(...fc.sample(histories, { seed: SEED, path: PATH, numRuns: 1 }));

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
      fc.asyncProperty(plans, async (history: History) => {
        await world.reset();
        try {
          for (const burst of history) await playBurst(world, burst);
          await drain(world);
          await check(world);
        } catch (error) {
          throw new Error(tell(world, error), { cause: error });
        }
        calls += world.calls.length;
      }),
      // The same plan may meet something else the next time: nothing is shrunk.
      { numRuns: HISTORIES, endOnFailure: true, ...(SEED === undefined || PATH !== undefined ? {} : { seed: SEED }) },
    );

    t.comment(`${result.numRuns} histories, ${calls} calls, seed ${result.seed}`);
    for (const [what, times] of [...world.met].sort()) t.comment(`${times} × ${what}`);
    if (result.failed) {
      const [why, ...told] = String(result.errorInstance).split('\n');
      for (const line of told) t.comment(line);
      t.comment(JSON.stringify(result.counterexample));
      t.fail(`REPLICA_SEED=${result.seed} REPLICA_PATH=${result.counterexamplePath}: ${why}`);
      return;
    }
    t.pass(`no violation in ${HISTORIES} histories`);
    const unmet = MET.filter((what) => !world.met.has(what));
    if (HISTORIES >= 3_000) t.same(unmet, [], 'the histories were not idle: they met every fault and every cell');
  },
);
