import assert from 'node:assert/strict';
import fc from 'fast-check';
import t from 'tap';
import { createEnvironment } from '../../src/control/environments.ts';
import { createQueue } from '../../src/create-queue.ts';
import { PreparingClient } from '../../src/db/client.ts';
import { databaseUrl, testDatabase } from '../support/harness.ts';
import { CELLS } from './cells.ts';
import { histories } from './histories.ts';
import type { Operation } from './operations.ts';
import { perform } from './perform.ts';
import * as lane from './process-lane.ts';
import { LEASE_TTL_SECONDS, LEASE_TTL_SECONDS_MAX, STARTUP_LEASE_SECONDS } from './wire-lane.ts';
import { World } from './world.ts';

/** `MODEL_HISTORIES=2000 MODEL_SEED=… npm test -- test/model/model.test.ts` runs more, or the same again. */
const HISTORIES = Number(process.env.MODEL_HISTORIES ?? 250);
const SEED = process.env.MODEL_SEED === undefined ? undefined : Number(process.env.MODEL_SEED);

t.setTimeout(20_000 + HISTORIES * 1_000);

t.test(
  'any history of calls, lapses and sweeps is answered as the contract says, and breaks no invariant',
  async (t) => {
    const database = await testDatabase(t);
    const settings = {
      ...{ startupLeaseSeconds: STARTUP_LEASE_SECONDS, leaseTtlSeconds: LEASE_TTL_SECONDS },
      leaseTtlSecondsMax: LEASE_TTL_SECONDS_MAX,
      ...{ maxAttempts: lane.MAX_ATTEMPTS, maxHandOvers: lane.MAX_HAND_OVERS },
    };
    const queue = createQueue({ database, settings });
    t.teardown(() => queue.close());
    const create = async (name: string, type: 'self_hosted' | 'cloud') =>
      (await createEnvironment(database, { name, type })).id;
    const [A, B] = [await create('A', 'self_hosted'), await create('B', 'self_hosted')];
    const C = await create('C', 'cloud');
    // One that prepares: planning what is asked after each step would cost more than all the rest.
    const client = new PreparingClient({ connectionString: databaseUrl() });
    await client.connect();
    t.teardown(() => client.end());
    const world = new World(database, queue, { A, B, C }, client);

    let steps = 0;
    const result = await fc.check(
      fc.asyncProperty(histories, async (history) => {
        await world.reset();
        steps += await run(world, history);
      }),
      // Who wants the first failure only does not want it shrunk.
      { numRuns: HISTORIES, endOnFailure: process.env.TAP_BAIL === '1', ...(SEED === undefined ? {} : { seed: SEED }) },
    );

    t.comment(`${result.numRuns} histories, ${steps} steps, seed ${result.seed}`);
    for (const [cell, times] of [...world.cells].sort()) t.comment(`${times} × ${cell}`);
    if (result.failed) {
      t.comment(`MODEL_SEED=${result.seed} fails; shrunk ${result.numShrinks} times, this is left:`);
      for (const line of String(result.errorInstance).split('\n')) t.comment(line);
    }
    t.notOk(result.failed, 'no violation');
    const unmet = CELLS.filter((cell) => !world.cells.has(cell));
    if (HISTORIES >= 1_000 && !result.failed)
      t.same(unmet, [], 'the histories were not idle: they met every transition');
  },
);

/** Fails with the history so far in its message: what is left after shrinking is the shortest one that fails. */
async function run(world: World, history: readonly Operation[]): Promise<number> {
  const lines: string[] = [];
  for (const operation of andTheRest(world, history)) {
    try {
      const step = await perform(world, operation);
      if (step === undefined) continue;
      lines.push(step.line);
      await world.check(step.changed, step.environments ?? []);
    } catch (error) {
      const told = error instanceof Error ? error.message : String(error);
      const failing = JSON.stringify(operation);
      throw new Error(['', ...lines.map((line, n) => `${n + 1}. ${line}`), `then ${failing}: ${told}`].join('\n'));
    }
  }
  return lines.length;
}

/** What is left to be claimed at the end is claimed, one after the other, until nothing is; what is not to be run again is swept. */
function* andTheRest(world: World, history: readonly Operation[]): Generator<Operation> {
  yield* history;
  for (const kind of lane.KINDS) {
    while (lane.claimable(world.items, world.environmentOf).some((item) => item.kind === kind)) {
      yield { verb: 'claim', kind, workerId: 'the last', ttlSeconds: 300 };
    }
  }
  if (world.items.some(lane.hasExpired)) yield { verb: 'sweep' };
  assert(!world.items.some(lane.hasExpired), 'no dead claimant has anything');
}
