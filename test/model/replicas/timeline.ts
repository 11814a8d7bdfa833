import { type Body, bodyOf, type Call, listOf } from './calls.ts';
import { type Row, sameInstant, type Version } from './log.ts';
import type { World } from './world.ts';

/** What has happened, put in order as far as it is known. */
export type Timeline = {
  readonly calls: readonly Call[];
  /** The replicas whose connections broke. */
  readonly broken: ReadonlySet<string>;
  readonly versions: readonly Version[];
  readonly items: ReadonlyMap<number, readonly Version[]>;
  /** Which item had the id, ever. */
  readonly seqOf: ReadonlyMap<string, number>;
  /** The versions that a call may have come across, each the present one at some time between its beginning and its end. */
  seen(call: Call, id: string): Version[];
  /** Whether the version may be this call's. */
  mayBe(call: Call, version: Version): boolean;
  /** What the row was after that. */
  next(version: Version): Version | undefined;
};

export function timelineOf({ log, calls, broken }: World): Timeline {
  const versions = log.all();
  const seqOf = new Map(versions.map(({ row }) => [row.id, row.seq]));
  const next = (version: Version) => {
    const item = log.items.get(version.row.seq) ?? [];
    return item[item.indexOf(version) + 1];
  };
  const isThere = (call: Call, version: Version) => version.committedAfter < call.ended && version.at <= call.notAfter;
  const isGone = (call: Call, version: Version) =>
    (next(version)?.committedBefore ?? Number.POSITIVE_INFINITY) < call.begun;
  const seen = (call: Call, id: string) => {
    const item = log.items.get(seqOf.get(id) ?? -1) ?? [];
    return item.filter((version) => isThere(call, version) && !isGone(call, version));
  };
  const mayBe = (call: Call, version: Version) =>
    call.by === version.by &&
    isThere(call, version) &&
    version.committedBefore > call.begun &&
    version.at >= call.notBefore;

  // Whoever was answered has seen a version; who asks later sees that one or a later one.
  for (const call of calls) {
    for (const body of shown(call)) {
      const [first] = seen(call, body?.id ?? '').filter(({ row }) => agrees(body, row));
      if (first !== undefined) first.committedBefore = Math.min(first.committedBefore, call.ended);
    }
  }
  for (const item of log.items.values()) {
    let bound = Number.POSITIVE_INFINITY;
    for (const version of item.toReversed()) {
      bound = Math.min(bound, version.committedBefore);
      version.committedBefore = bound;
    }
  }
  return { calls, broken, versions, items: log.items, seqOf, seen, mayBe, next };
}

/** The items that an answer shows. */
function shown(call: Call): Body[] {
  const body = bodyOf(call);
  if (call.verb === 'enqueue') return listOf(body)?.map((one) => one.work ?? null) ?? [body];
  if (call.verb === 'beat' && body !== null) return [{ id: call.id, ...body }];
  return body?.id === undefined ? [] : [body];
}

/** The answer shows the row as it was then. A heartbeat's shows less than an item. */
export function agrees(body: Body, row: Row): boolean {
  if (body === null || body.state !== row.state) return false;
  if (body.lease_extended !== undefined) return sameInstant(body.last_heartbeat, row.last_heartbeat);
  return (
    body.id === row.id &&
    sameInstant(body.acknowledged_at, row.acknowledged_at) &&
    sameInstant(body.started_at, row.started_at) &&
    sameInstant(body.latest_heartbeat_at, row.last_heartbeat) &&
    sameInstant(body.stop_requested_at, row.stop_requested_at) &&
    sameInstant(body.stopped_at, row.stopped_at) &&
    JSON.stringify(Object.entries(body.metadata ?? {}).sort()) === JSON.stringify(Object.entries(row.metadata).sort())
  );
}
