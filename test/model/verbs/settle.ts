import assert from 'node:assert/strict';
import { sql } from 'kysely';
import type { CallerTransaction } from '../../../src/db/connect.ts';
import { type Lease, LeaseError } from '../../../src/process/lease.ts';
import type * as model from '../model.ts';
import { detail } from '../naming.ts';
import type { Of } from '../operations.ts';
import type { Step } from '../perform.ts';
import * as lane from '../process-lane.ts';
import { asLeaseError, isLost, proofOf } from '../proofs.ts';
import { inside } from '../transactions.ts';
import type { ModelItem, World } from '../world.ts';

/** Ends of an owner's work, with the proof: alone, or in a transaction whose outcome is theirs. */
export async function settle(
  world: World,
  operation: Of<'complete' | 'give back' | 'fail'>,
): Promise<Step | undefined> {
  const found = proofOf(world, operation);
  if (found === undefined) return undefined;
  const { item, lease } = found;
  const { verb, shown, within } = operation;
  const settlement = settlementOf(operation);
  const answer = await inside(world, within, (transaction) =>
    ask(world, lease, settlement, transaction).catch(asLeaseError),
  );
  const done = (result: string, changed: readonly ModelItem[] = []): Step => ({
    line: `${verb} ${item.name}${detail({ ...settlement, how: undefined })}, proof ${shown}, ${within} → ${result}`,
    changed: new Set(changed),
  });
  if (!lane.isHeldBy(item, lease)) {
    world.met(verb, item.state, 'lost');
    assert(isLost(answer), 'only who holds it settles it');
    return done('lost');
  }
  const settled: ModelItem = { ...item };
  if (!lane.settle(settled, settlement)) {
    world.met(verb, item.state, 'lost to the request to cancel');
    assert(answer instanceof LeaseError && answer.code === 'cancelled', 'a request to cancel was there first');
    return done('cancelled');
  }
  assert(!(answer instanceof LeaseError), `${verb} is done`);
  const { state, stopReason, nextAttempt } = settled;
  assert.deepEqual([answer.state, answer.reason], [state, stopReason], `what became of ${item.name}`);
  assert.equal(answer.nextAttemptAt !== null, nextAttempt === 'future', 'only what failed waits');
  const result = stopReason ?? state;
  if (within === 'rolled back') {
    world.met(verb, item.state, 'rolled back');
    return done(`${result}, rolled back`);
  }
  world.met(verb, lane.hasExpired(item) ? 'lapsed' : item.state, result);
  Object.assign(item, settled);
  if (nextAttempt === 'future') await checkBackoff(world, item);
  return done(result, [item, ...world.follow(`${verb}, process`, 'active', item, await world.born())]);
}

function settlementOf(operation: Of<'complete' | 'give back' | 'fail'>): lane.Settlement {
  switch (operation.verb) {
    case 'complete':
      return { how: 'complete', unlessCancelled: operation.unlessCancelled };
    case 'give back':
      return { how: 'give back' };
    case 'fail':
      return { how: 'fail', isFinal: operation.isFinal, error: 'Error: it broke' };
  }
}

function ask(world: World, lease: Lease, settlement: lane.Settlement, transaction: CallerTransaction | undefined) {
  switch (settlement.how) {
    case 'complete':
      return world.queue.complete(lease, { unlessCancelled: settlement.unlessCancelled }, transaction);
    case 'give back':
      return world.queue.requeue(lease, transaction);
    case 'fail':
      return world.queue.fail(lease, new Error('it broke'), { isFinal: settlement.isFinal }, transaction);
  }
}

/** Half to all of 1 s, 2 s, 4 s …; then it is moved so far ahead that no history gets there by itself. */
async function checkBackoff({ database }: World, { seq, name, attempt }: model.Item<unknown> & { name: string }) {
  const { workItems } = database.names;
  const [row] = await database.rows(sql<{ seconds: number }>`
    with waiting as materialized (
      select w.seq, w.next_attempt_at - clock_timestamp() as wait from ${workItems} w where w.seq = ${seq}
    )
    update ${workItems} w set next_attempt_at = '2999-01-01T00:00:00Z' from waiting where w.seq = waiting.seq
    returning extract(epoch from waiting.wait)::float8 as seconds`);
  const most = 2 ** (attempt - 2);
  assert(row && row.seconds <= most && row.seconds > most / 2 - LATE_SECONDS_MAX, `${name} waits: ${row?.seconds} s`);
}

/** Between the failure and the look at it. */
const LATE_SECONDS_MAX = 20;
