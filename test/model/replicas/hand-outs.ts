import assert from 'node:assert/strict';
import { send } from './client.ts';
import type { Edge } from './edges.ts';
import type { Edges } from './explain.ts';
import type { Row, Version } from './log.ts';
import type { Which } from './plan.ts';
import type { Timeline } from './timeline.ts';
import type { World } from './world.ts';

type HandOut = { readonly id: string; readonly worker: string | null; end: string | null; isGivenBack: boolean };

/** What is remembered, in the tables and by the history of each item, is each hand-out that there was, with its end. */
export async function checkHistories(world: World, { items }: Timeline, edges: Edges): Promise<void> {
  const { pool, place } = world;
  const histories = [...items.values()].map((item) => ({ item, handOuts: handOutsOf(item, edges), row: lastOf(item) }));
  for (const { row, handOuts } of histories) {
    const counted = handOuts.filter(({ isGivenBack }) => !isGivenBack).length;
    assert.equal(row.hand_out_count, counted, `item ${row.seq} counts the hand-outs that were not given back`);
  }
  const { rows } = await pool.query<{ handOuts: unknown[]; results: unknown[] }>(`
    select
      (select coalesce(json_agg(json_build_array(h.item_seq, h.work_id, h.reason) order by h.work_id collate "C"), '[]')
        from ${place.schema}.hand_outs h) as "handOuts",
      (select coalesce(json_agg(json_build_array(r.item_seq, r.result) order by r.item_seq), '[]')
        from ${place.schema}.work_results r) as results`);
  const superseded = histories.flatMap(({ row, handOuts }) =>
    handOuts.flatMap(({ id, end }) => (id === row.id ? [] : [[row.seq, id, end] as const])),
  );
  superseded.sort(([, one], [, other]) => (one < other ? -1 : 1));
  assert.deepEqual(rows[0]?.handOuts, superseded, 'the hand-outs that ended before their items');
  const results = histories.flatMap(({ row: { seq, result } }) => (result === null ? [] : [[seq, result] as const]));
  results.sort(([one], [other]) => one - other);
  assert.deepEqual(rows[0]?.results, results, 'the results of what succeeded');
  await Promise.all(
    histories.map(async ({ item, row, handOuts }, index) => {
      const told = await readHistory(world, index % 2 === 0 ? 0 : 1, item[0]?.row.id ?? row.id);
      const ended = handOuts.map(({ id, worker, end }) => ({ id, worker, end }));
      const difference = `${JSON.stringify(told)}, not ${JSON.stringify(ended)}`;
      assert.deepEqual(told, ended, `the history of item ${row.seq} tells of ${difference}`);
    }),
  );
}

function lastOf(item: readonly Version[]): Row {
  const last = item.at(-1);
  assert(last !== undefined, 'an item has a version');
  return last.row;
}

/** By what became of its row. */
function handOutsOf(item: readonly Version[], edges: Edges): HandOut[] {
  const handOuts: HandOut[] = [];
  for (const version of item) {
    const { old, row } = version;
    const edge = edges.get(version);
    const last = handOuts.at(-1);
    if (last !== undefined && old !== null && row.id !== old.id) {
      last.isGivenBack = edge === 'released' || edge === 'tried again';
      last.end = supersededBy(edge, old);
    }
    if (edge === 'put back' && row.handed_out_at === null) handOuts.pop();
    if (edge === 'handed out' || (edge === 'acked' && old?.handed_out_at === null)) {
      handOuts.push({ id: row.id, worker: row.worker_id, end: null, isGivenBack: false });
    }
    if (row.state === 'stopped' && row.handed_out_at !== null && last !== undefined) {
      last.end = row.outcome ?? row.stop_reason;
    }
  }
  return handOuts;
}

function supersededBy(edge: Edge | undefined, { state, lapsed_state: lapsed }: Row): string {
  if (edge === 'released') return 'released';
  if (edge === 'tried again') return 'failed';
  const reached = [lapsed, state];
  if (reached.includes('active')) return 'lease_lapsed';
  return reached.includes('starting') ? 'startup_lease_lapsed' : 'reservation_lapsed';
}

async function readHistory({ place, replicas }: World, which: Which, id: string) {
  const { environmentId, operatorKey: as } = place;
  const path = `/control/v1/environments/${environmentId}/work/${id}/history`;
  const { url, agent } = replicas[which];
  const outcome = await send(url, agent, { method: 'GET', path, as });
  const told = outcome.kind === 'answered' ? outcome.body?.hand_outs : undefined;
  return told?.map((one) => ({ id: one.work_id, worker: one.worker_id, end: one.outcome }));
}
