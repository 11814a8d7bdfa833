import assert from 'node:assert/strict';
import * as model from '../model.ts';
import type { Of } from '../operations.ts';
import type { Step } from '../perform.ts';
import * as lane from '../process-lane.ts';
import type { World } from '../world.ts';

/** The candidate that a claim would take of what is queued. A read: it owns nothing. */
export async function look(world: World, { kind }: Of<'look'>): Promise<Step> {
  const candidate = await world.queue.nextEligible(kind);
  const [next] = world.items
    .filter((item) => item.kind === kind && lane.isEligible(item, world.environmentOf(item.environmentId)))
    .sort(model.byClaimOrder);
  assert.equal(candidate && world.named(candidate.seq), next?.name ?? null, 'the first in line');
  if (candidate !== null && next !== undefined) {
    const { id, environmentId, sessionId } = next;
    assert.deepEqual(candidate, {
      ...{ seq: next.seq, id, environmentId, sessionId, kind, handOut: next.handOutCount },
    });
    world.candidates.push(candidate);
  }
  world.met('look', next === undefined ? 'nothing' : next.lane, next === undefined ? 'null' : 'a candidate');
  return { line: `look ${kind} → ${next?.name ?? null}`, changed: new Set() };
}

/** Leases that have run out, the oldest item first. A read, too. */
export async function scan(world: World, { kinds, limit }: Of<'scan'>): Promise<Step> {
  const found = await world.queue.expired(kinds, limit);
  const lapsed = world.items
    .filter((item) => kinds.some((kind) => kind === item.kind) && lane.hasExpired(item))
    .sort(model.byAge)
    .slice(0, limit);
  assert.deepEqual(
    found.map(({ seq, id, environmentId, kind, workerId, handOut, expiresAt }) => {
      return { seq, id, environmentId, kind, workerId, handOut, expiresAt };
    }),
    lapsed.map(({ id, environmentId, kind, proof }) => ({ ...proof, id, environmentId, kind })),
    'the leases that have run out',
  );
  world.expired.push(...found);
  world.met('scan', lapsed.length === 0 ? 'nothing' : 'lapsed', 'found');
  return { line: `scan → ${lapsed.map(({ name }) => name).join(', ') || 'none'}`, changed: new Set() };
}
