import assert from 'node:assert/strict';
import { sql } from 'kysely';
import { QueueError } from '../../../src/queue/errors.ts';
import type { HandOut } from '../../../src/queue/poll.ts';
import { asRefusal, checkNotFound } from '../agree.ts';
import * as holder from '../holder-lane.ts';
import { detail, itemsOf } from '../naming.ts';
import type { Of } from '../operations.ts';
import type { Step } from '../perform.ts';
import type { ModelItem, World } from '../world.ts';

/** Between the failure and the look at it. */
const LATE_SECONDS_MAX = 20;

function find(world: World, { slot, earlier }: { readonly slot: Of<'release'>['slot']; readonly earlier: boolean }) {
  const item = itemsOf(world, slot).at(-1);
  const handOut = item?.handOuts.at(earlier ? -2 : -1);
  return item === undefined || handOut === undefined ? undefined : { item, handOut };
}

export async function release(world: World, operation: Of<'release'>): Promise<Step | undefined> {
  const found = find(world, operation);
  if (found === undefined) return undefined;
  const { item, handOut } = found;
  const { earlier, isDelayed } = operation;
  const answer = await world.queue.release(handOut, { delayMs: isDelayed ? 86_400_000 : 0 }).catch(asRefusal);
  const [before, verdict] = [item.state, holder.judgeHolder(item, handOut)];
  world.met('release', before, verdict);
  const step = (changed: readonly ModelItem[] = []): Step => ({
    line: `release ${item.name}${detail({ earlier, isDelayed })} → ${verdict}`,
    changed: new Set(changed),
  });
  switch (verdict) {
    case 'released before':
      assert.deepEqual(answer, { state: 'queued', isFree: false });
      return step();
    case 'over':
      assert.deepEqual(answer, { state: 'stopped', isFree: false });
      return step();
    case 'winds down':
      assert.deepEqual(answer, { state: 'stopped', isFree: false });
      holder.endWoundDown(item);
      return step([item]);
    case 'held':
      assert.deepEqual(answer, { state: 'queued', isFree: !isDelayed });
      holder.giveBack(item, handOut, await freshId(world, item), 'released', isDelayed ? 'future' : 'none');
      return step([item]);
    default:
      checkRefused(world, answer, verdict, item, handOut);
      return step();
  }
}

export async function report(world: World, operation: Of<'report'>): Promise<Step | undefined> {
  const found = find(world, operation);
  if (found === undefined) return undefined;
  const { item, handOut } = found;
  const { earlier, status, isFinal } = operation;
  const isFailed = status === 'failed';
  const result = isFailed ? undefined : operation.result;
  const said = isFailed ? { status, error: 'it broke', isFinal } : { status, result };
  const answer = await world.queue.reportOutcome(handOut, said).catch(asRefusal);
  const before = item.state;
  const isOver = holder.judgeHolder(item, handOut) === 'over';
  const stored = result === undefined ? null : JSON.stringify(result);
  const verdict = holder.judgeReport(item, handOut, status, stored);
  const step = (told: string, changed: readonly ModelItem[] = []): Step => {
    world.met(status, before, told);
    return {
      line: `report ${item.name} ${detail({ earlier, status, result, isFinal })} → ${told}`,
      changed: new Set(changed),
    };
  };
  switch (verdict) {
    case 'repeated':
      assert.deepEqual(answer, { status, state: isOver ? 'stopped' : 'queued', isFollowed: false });
      return step(verdict);
    case 'conflict':
      assert(answer instanceof QueueError && answer.code === 'conflict', 'something else is a conflict');
      return step(verdict);
    case 'held':
    case 'winds down': {
      assert(!(answer instanceof QueueError), 'who holds it says what became of it');
      if (isFailed) item.lastError = 'it broke';
      if (isFailed && verdict === 'held' && !isFinal && !holder.isLastAttempt(item)) {
        assert.deepEqual(answer, { status, state: 'queued', isFollowed: false });
        holder.giveBack(item, handOut, await freshId(world, item), 'failed', 'future');
        item.attempt += 1;
        await checkBackoff(world, item);
        return step('tried again', [item]);
      }
      holder.conclude(item, status, stored);
      const followedBy = world.follow(status, before, item, await world.born());
      assert.deepEqual(answer, { status, state: 'stopped', isFollowed: followedBy.length > 0 });
      return step('stopped', [item, ...followedBy]);
    }
    default:
      checkRefused(world, answer, verdict, item, handOut);
      return step(verdict);
  }
}

function checkRefused(
  world: World,
  answer: unknown,
  verdict: 'lapsed' | 'not found',
  item: ModelItem,
  { item: { environmentId, id } }: HandOut,
): void {
  if (verdict === 'not found') {
    checkNotFound(world, answer, { item, ref: { environmentId, id }, isFound: false, label: item.name });
    return;
  }
  assert(answer instanceof QueueError && answer.code === 'precondition_failed', 'under no live lease nothing is said');
}

/** It is another one than it ever was. */
async function freshId({ database }: World, { seq, oldIds, id, name }: ModelItem): Promise<string> {
  const [row] = await database.rows(
    sql<{ id: string }>`select w.id from ${database.names.workItems} w where w.seq = ${seq}`,
  );
  assert(row && row.id !== id && !oldIds.includes(row.id), `${name} has a new id`);
  return row.id;
}

/** Half to all of 1 s, 2 s, 4 s …; then it is moved so far ahead that no history gets there by itself. */
async function checkBackoff({ database }: World, { seq, name, attempt }: ModelItem): Promise<void> {
  const { workItems } = database.names;
  const [row] = await database.rows(sql<{ seconds: number }>`
    with waiting as materialized (
      select w.seq, w.not_before - clock_timestamp() as wait from ${workItems} w where w.seq = ${seq}
    )
    update ${workItems} w set not_before = '2999-01-01T00:00:00Z' from waiting where w.seq = waiting.seq
    returning extract(epoch from waiting.wait)::float8 as seconds`);
  const most = 2 ** (attempt - 2);
  assert(row && row.seconds <= most && row.seconds > most / 2 - LATE_SECONDS_MAX, `${name} waits: ${row?.seconds} s`);
}
