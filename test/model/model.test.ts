import fc from 'fast-check';
import t from 'tap';
import { createEnvironment } from '../../src/control/environments.ts';
import { createQueue } from '../../src/create-queue.ts';
import { PreparingClient } from '../../src/db/client.ts';
import { databaseUrl, testDatabase } from '../support/harness.ts';
import { histories } from './histories.ts';
import { LEASE_TTL_SECONDS, LEASE_TTL_SECONDS_MAX, STARTUP_LEASE_SECONDS } from './model.ts';
import type { Operation } from './operations.ts';
import { perform } from './perform.ts';
import { World } from './world.ts';

/** `MODEL_HISTORIES=2000 MODEL_SEED=… npm test -- test/model/model.test.ts` runs more, or the same again. */
const HISTORIES = Number(process.env.MODEL_HISTORIES ?? 150);
const SEED = process.env.MODEL_SEED === undefined ? undefined : Number(process.env.MODEL_SEED);

/** What every longer run has to come by, else the test says nothing about it. */
const CELLS = [
  'ack, queued: answered',
  'forced stop, active: stopped',
  'heartbeat, active: beat',
  'heartbeat, active: refused',
  'heartbeat, active: replay',
  'heartbeat, queued: refused',
  'heartbeat, starting: beat',
  'heartbeat, stopping: over',
  'heartbeat, stopped: over',
  'poll, active: new id',
  'poll, queued: id kept',
  'poll, queued: new id',
  'stop, active: stopping',
  'sweep, active: requeued',
  'sweep, stopped: forgotten',
  ...['queued', 'starting', 'active'].flatMap((state) => [
    `poll, ${state}: exhausted`,
    `poll, ${state}: paused`,
    `sweep, ${state}: exhausted`,
    `enqueue, ${state}: covered`,
    `follow-up, ${state}: armed`,
    `follow-up, ${state}: one is there`,
    `exhausted by poll with a follow-up, ${state}: stopped`,
    `exhausted by sweep with a follow-up, ${state}: stopped`,
    `stop with a follow-up, ${state}: ${state === 'active' ? 'stopping' : 'stopped'}`,
    `forced stop with a follow-up, ${state}: stopped`,
    `cancel, ${state}: cancelled`,
    `cancel, ${state}: cancelled, its follow-up dropped`,
  ]),
  ...['queued', 'starting', 'active', 'stopping', 'stopped'].flatMap((state) => [
    `enqueue, ${state}: known`,
    `enqueue, ${state}: taken`,
  ]),
  'enqueue, no item: new',
  'poll, stopping: finalised',
  'poll, stopping: finalised though paused',
  'cancel, stopping: cancelled',
  'cancel, queued: cancelled, model_turn',
  'put back, queued: id kept',
  'put back, queued: new id',
  'requeue, exhausted: requeued',
  'requeue, exhausted: again',
  'requeue, exhausted: slot',
  'requeue, worker: not set aside',
  'requeue, queued: not set aside',
];

t.setTimeout(20_000 + HISTORIES * 1_000);

t.test(
  'any history of calls, lapses and sweeps is answered as the contract says, and breaks no invariant',
  async (t) => {
    const database = await testDatabase(t);
    const settings = {
      ...{ startupLeaseSeconds: STARTUP_LEASE_SECONDS, leaseTtlSeconds: LEASE_TTL_SECONDS },
      leaseTtlSecondsMax: LEASE_TTL_SECONDS_MAX,
    };
    const queue = createQueue({ database, settings });
    t.teardown(() => queue.close());
    const [A, B] = await Promise.all(
      ['A', 'B'].map(async (name) => (await createEnvironment(database, { name, type: 'self_hosted' })).id),
    );
    if (A === undefined || B === undefined) throw new Error('no environments');
    // One that prepares: planning what is asked after each step would cost more than all the rest.
    const client = new PreparingClient({ connectionString: databaseUrl() });
    await client.connect();
    t.teardown(() => client.end());
    const world = new World(database, queue, { A, B }, client);

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
  for (const operation of history) {
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
