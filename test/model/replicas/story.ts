import { describe } from './calls.ts';
import type { World } from './world.ts';

/** All that happened, for whoever looks for the fault. */
export function tell({ log, calls }: World, error: unknown): string {
  const why = error instanceof Error ? error.message : String(error);
  const told = log.all().map(({ n, by, row, old, committedAfter, committedBefore }) => {
    const {
      seq,
      id,
      session_id: session,
      state,
      hand_out_count: count,
      last_heartbeat: token,
      lease_expires_at: lease,
    } = row;
    const shown = { id, session, count, token, lease, worker: row.worker_id };
    return `version ${n} by ${by}, ticks ${committedAfter} to ${committedBefore}: item ${seq} ${old?.state ?? 'none'} → ${state} ${JSON.stringify(shown)}`;
  });
  return [why, ...told, ...calls.map(describe)].join('\n');
}
