import assert from 'node:assert/strict';
import { type Call, statusOf } from './calls.ts';
import type { Edges } from './explain.ts';
import type { Version } from './log.ts';
import type { Hold } from './null-promise.ts';
import type { Timeline } from './timeline.ts';

export type Check = {
  readonly timeline: Timeline;
  readonly edges: Edges;
  readonly holds: readonly Hold[];
  readonly met: (cell: string) => void;
};

/** Which cell of the state table was met, where that can be told. */
export type Cell = string | undefined;

export type Named = Extract<Call, { readonly id: string }>;

/** The answer has this status, and some state that the item had then explains it. */
export function found({ timeline }: Check, call: Named, status: number, explains: (version: Version) => boolean): Cell {
  assert.equal(statusOf(call), status, `call ${call.n} is answered ${status}, as the contract says`);
  const version = timeline
    .seen(call, call.id)
    .filter(({ row }) => row.id === call.id)
    .find(explains);
  assert(version !== undefined, `call ${call.n} was answered by what its item was at the time`);
  return `${call.verb}, ${version.row.state}: ${status}`;
}
