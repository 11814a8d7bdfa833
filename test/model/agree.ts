import assert from 'node:assert/strict';
import { QueueError } from '../../src/queue/errors.ts';
import type { WorkItem } from '../../src/queue/items.ts';
import { type Named, placeOf } from './naming.ts';
import type { ModelItem, World } from './world.ts';

/** The answered item is the model's; its instants are there exactly when they were reached. */
export function agree(answer: WorkItem, item: ModelItem): void {
  const { id, seq, state, environmentId, sessionId, kind, metadata, createdAt, lastHeartbeat } = answer;
  assert.deepEqual(
    { id, seq, state, environmentId, sessionId, kind, metadata, createdAt, lastHeartbeat },
    {
      ...{
        id: item.id,
        seq: item.seq,
        state: item.state,
        environmentId: item.environmentId,
        sessionId: item.sessionId,
      },
      ...{ kind: item.kind, metadata: item.metadata, createdAt: item.createdAt, lastHeartbeat: item.lastHeartbeat },
    },
    `the answer for ${item.name}`,
  );
  assert.equal(answer.startedAt !== null, item.started, `${item.name} was started`);
  // What was claimed and is queued again tells when it last was.
  if (item.state === 'queued' && item.lane === 'wire')
    assert.equal(answer.acknowledgedAt, null, `${item.name} was not acked`);
  if (item.state === 'starting' || item.started) assert(answer.acknowledgedAt, `${item.name} was acked`);
  assert.equal(answer.stoppedAt !== null, item.state === 'stopped', `${item.name} was stopped`);
  if (item.state === 'stopping') assert(answer.stopRequestedAt, `${item.name} was asked to stop`);
}

export function checkNotFound(world: World, answer: unknown, { ref, item }: Named): string {
  assert(answer instanceof QueueError, 'a refusal');
  assert.equal(answer.code, 'not_found');
  if (item.lane === 'process' && ref.id === item.id) {
    const since = placeOf(world, item.slot).lane === 'process' ? 'it is not of this lane' : 'it has changed lanes';
    world.met('a call of the wire', item.state, `not found, ${since}`);
  }
  const superseded = item.oldIds.includes(ref.id) && ref.environmentId === item.environmentId;
  assert.equal(
    answer.message.includes('new id'),
    superseded,
    'the message tells whether the item was handed out again',
  );
  return answer.code;
}

export function asRefusal(error: unknown): QueueError {
  if (error instanceof QueueError) return error;
  throw error;
}
