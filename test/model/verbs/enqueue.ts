import assert from 'node:assert/strict';
import { sql } from 'kysely';
import { QueueError } from '../../../src/queue/errors.ts';
import { agree, asRefusal } from '../agree.ts';
import * as model from '../model.ts';
import { detail, itemsOf, placeOf } from '../naming.ts';
import type { Of } from '../operations.ts';
import type { Step } from '../perform.ts';
import type { ModelItem, World } from '../world.ts';

const INSTANTS = { none: undefined, past: '2020-01-01T00:00:00Z', future: '2999-01-01T00:00:00Z' } as const;

export async function enqueue(world: World, operation: Of<'enqueue'>): Promise<Step> {
  const { slot, work, followUp, requestId } = operation;
  const { priority, metadata, maxHandOuts, maxAttempts, notBefore } = work;
  const { lane, ...place } = placeOf(world, slot);
  const request = `${place.environmentId} ${requestId}`;
  const known = requestId === undefined ? undefined : world.requests.get(request);
  const covering = itemsOf(world, slot).find(model.isLive);
  const instant = INSTANTS[notBefore];
  const answer = await world.queue
    .enqueue({
      ...{ ...place, priority, metadata, followUp },
      ...(maxHandOuts === null ? {} : { maxHandOuts }),
      ...(maxAttempts === null ? {} : { maxAttempts }),
      ...(lane === 'wire' ? {} : { input: priority }),
      ...(instant === undefined ? {} : { notBefore: instant }),
      ...(requestId === undefined ? {} : { requestId }),
    })
    .catch(asRefusal);

  const verdict = model.judgeEnqueue({ ...place, isRefused: slot === 'A/s1 outputs_harvest' }, known, covering);
  const { maxHandOuts: cap, metadata: pairs, ...rest } = work;
  const metadataText = Object.keys(pairs).length === 0 ? undefined : JSON.stringify(pairs);
  const done = (changed: readonly ModelItem[], result: string): Step => ({
    line: `enqueue ${slot}${detail({ ...rest, cap, metadata: metadataText, followUp, requestId })} → ${result}`,
    changed: new Set(changed),
  });
  world.met('enqueue', (known ?? covering)?.state ?? 'no item', verdict);
  if (verdict === 'taken') {
    assert(answer instanceof QueueError, 'a request id of another session or kind is refused');
    assert.equal(answer.code, 'conflict');
    return done([], verdict);
  }
  if (verdict === 'kind refused') {
    assert(answer instanceof QueueError, 'a self_hosted environment has no outputs to harvest');
    assert.equal(answer.code, 'invalid_request');
    return done([], verdict);
  }
  assert(!(answer instanceof QueueError), `enqueue is answered, not refused: ${verdict}`);
  assert.equal(answer.created, verdict === 'new', `created, or not: it is ${verdict}`);
  const item = (verdict === 'known' ? known : covering) ?? world.add(slot, answer.item, work);
  agree(answer.item, item);
  assert.equal(answer.lane, item.lane, `the lane of ${item.name}`);
  if (requestId !== undefined) world.requests.set(request, item);
  if (verdict !== 'covered' || !followUp) return done(verdict === 'new' ? [item] : [], verdict);
  const isFirst = model.arm(item, { ...work, id: await followUpId(world, item) });
  world.met('follow-up', item.state, isFirst ? 'armed' : 'one is there');
  return done(isFirst ? [item] : [], `${verdict}, ${isFirst ? 'to be followed' : 'is followed already'}`);
}

/** Minted by the database's side: the model takes it as it is, and holds it against all that comes. */
async function followUpId({ database }: World, { seq, name }: ModelItem): Promise<string> {
  const [row] = await database.rows(sql<{ id: string | null }>`
    select w.follow_up ->> 'id' as id from ${database.names.workItems} w where w.seq = ${seq}`);
  assert(row?.id, `a follow-up is kept with ${name}`);
  return row.id;
}
