import assert from 'node:assert/strict';
import { QueueError } from '../../../src/queue/errors.ts';
import { agree, checkNotFound } from '../agree.ts';
import { detail, itemsOf, nameAll, pairs, tokenOf } from '../naming.ts';
import type { Of } from '../operations.ts';
import type { Step } from '../perform.ts';
import * as wire from '../wire-lane.ts';
import type { ModelItem, World } from '../world.ts';

export async function ack(world: World, operation: Of<'ack'>): Promise<Step | undefined> {
  const changed = new Set<ModelItem>();
  const named = nameAll(world, operation.targets);
  if (named.length === 0) return undefined;
  const answers = await world.queue.ack(named.map(({ ref }) => ref));
  const results = named.map((target, n) => {
    const answer = answers[n];
    if (!target.isFound) return checkNotFound(world, answer, target);
    world.met('ack', target.item.state, 'answered');
    if (wire.ack(target.item)) changed.add(target.item);
    assert(answer !== undefined && !(answer instanceof QueueError), 'ack is never a conflict');
    agree(answer, target.item);
    return answer.state;
  });
  return { line: `ack ${pairs(named, results)}`, changed };
}

export async function heartbeat(world: World, operation: Of<'heartbeat'>): Promise<Step | undefined> {
  const changed = new Set<ModelItem>();
  const { token, isRetry, desiredTtlSeconds } = operation;
  const named = nameAll(world, operation.targets);
  // The same item twice in a set would need a token that the set has yet to mint.
  const distinct = named.filter(({ item }, n) => named.findIndex((other) => other.item === item) === n);
  if (distinct.length === 0) return undefined;
  const requests = distinct.map(({ item, ref }) => ({
    ...ref,
    ...{ expectedLastHeartbeat: tokenOf(item, token), isRetry, desiredTtlSeconds },
  }));
  const answers = await world.queue.heartbeat(requests);
  const results = distinct.map((target, n) => {
    const { item } = target;
    const [answer, request] = [answers[n], requests[n]];
    if (!target.isFound) return checkNotFound(world, answer, target);
    assert(answer !== undefined && request !== undefined);
    const verdict = wire.judgeHeartbeat(item, request.expectedLastHeartbeat, isRetry);
    world.met('heartbeat', item.state, verdict);
    if (verdict === 'beat' || verdict === 'replay') {
      assert(!(answer instanceof QueueError), `a ${verdict} is accepted`);
      const ttl = Math.min(desiredTtlSeconds ?? wire.LEASE_TTL_SECONDS, wire.LEASE_TTL_SECONDS_MAX);
      if (verdict === 'replay') wire.extend(item, ttl);
      else {
        const minted = answer.lastHeartbeat ?? '';
        assert(minted > (item.lastHeartbeat ?? ''), 'tokens strictly increase');
        assert(!item.tokens.includes(minted), 'a token is never used again');
        wire.beat(item, minted, ttl);
        item.tokens.push(minted);
      }
      changed.add(item);
    }
    const { state, lastHeartbeat } = item;
    const ttlSeconds = item.ttlSeconds ?? wire.LEASE_TTL_SECONDS;
    if (verdict === 'refused') {
      assert(answer instanceof QueueError, 'the heartbeat is refused');
      assert.equal(answer.code, 'precondition_failed');
      assert.deepEqual(answer.details, {
        error_code: 'heartbeat_precondition_failed',
        current_state: { state, last_heartbeat: lastHeartbeat, lease_extended: false, ttl_seconds: ttlSeconds },
      });
    } else {
      assert.deepEqual(answer, { lastHeartbeat, leaseExtended: verdict !== 'over', state, ttlSeconds });
    }
    return verdict;
  });
  return { line: `heartbeat ${token}${detail({ isRetry, desiredTtlSeconds })} ${pairs(distinct, results)}`, changed };
}

export async function putBack(world: World, operation: Of<'put back'>): Promise<Step | undefined> {
  const changed = new Set<ModelItem>();
  const item = itemsOf(world, operation.slot).at(-1);
  const handOut = item?.handOuts.at(operation.earlier ? -2 : -1);
  if (item === undefined || handOut === undefined) return undefined;
  const { earlier, unseen } = operation;
  const before = item.state;
  const result = wire.putBack(item, handOut, unseen);
  if (result) changed.add(item);
  world.met('put back', before, result ? (unseen ? 'id kept' : 'new id') : 'refused');
  assert.equal(
    await world.queue.putBack(handOut, unseen),
    result,
    'only what is still reserved by that hand-out goes back',
  );
  return { line: `put back ${item.name}${detail({ earlier, unseen })} → ${result}`, changed };
}
