import { describe } from './calls.ts';
import type { Version } from './log.ts';
import type { World } from './world.ts';

/** All that happened, for whoever looks for the fault. */
export function tell({ log, calls }: World, error: unknown): string {
  const why = error instanceof Error ? error.message : String(error);
  const versions = log.all().map((version) => {
    const {
      seq,
      id,
      session_id: session,
      hand_out_count: count,
      last_heartbeat: token,
      worker_id: worker,
    } = version.row;
    const { lease_expires_at: lease, not_before: notBefore, attempt, outcome, result } = version.row;
    const shown = { id, session, count, token, lease, notBefore, attempt, worker, outcome, result };
    const change = `${version.old?.state ?? 'none'} → ${version.row.state}`;
    return `${stampsOf(version)}: item ${seq} ${change} ${JSON.stringify(shown)}`;
  });
  const locks = [...log.locks.values()]
    .flat()
    .map((version) => `${stampsOf(version)}: lock ${JSON.stringify(version.row)}`);
  return [why, ...versions, ...locks, ...calls.map(describe)].join('\n');
}

const stampsOf = ({ n, by, committedAfter, committedBefore }: Version<unknown>): string =>
  `version ${n} by ${by}, ticks ${committedAfter} to ${committedBefore}`;
