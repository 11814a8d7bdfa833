import { type Body, bodyOf, type Call, listOf } from './calls.ts';
import { type LockRow, type Row, sameInstant, type Version } from './log.ts';
import type { World } from './world.ts';

/** What has happened, put in order as far as it is known. */
export type Timeline = {
  readonly calls: readonly Call[];
  /** The replicas whose connections broke. */
  readonly broken: ReadonlySet<string>;
  readonly versions: readonly Version[];
  readonly items: ReadonlyMap<number, readonly Version[]>;
  /** By their names. */
  readonly locks: ReadonlyMap<string, readonly Version<LockRow>[]>;
  /** Which item had the id, ever. */
  readonly seqOf: ReadonlyMap<string, number>;
  /** What became of it. */
  itemOf(id: string): readonly Version[];
  /** The versions that a call may have come across, each the present one at some time between its beginning and its end. */
  seen(call: Call, id: string): Version[];
  seenOf<Of>(call: Call, list: readonly Version<Of>[]): Version<Of>[];
  /** Whether the version may be this call's. */
  mayBe(call: Call, version: Version<unknown>): boolean;
  /** Whether the version may have been there before the call ended. */
  mayPrecede(call: Call, version: Version<unknown>): boolean;
  /** What the row was after that. */
  next(version: Version): Version | undefined;
};

export function timelineOf({ log, calls, broken }: World): Timeline {
  const versions = log.all();
  const seqOf = new Map(versions.map(({ row }) => [row.id, row.seq]));
  const itemOf = (id: string) => log.items.get(seqOf.get(id) ?? -1) ?? [];
  const lists = [...log.items.values(), ...log.locks.values()];
  const nexts = new Map(lists.flatMap((list) => list.map((version, index) => [version, list[index + 1]] as const)));
  const next = (version: Version) => nexts.get(version) as Version | undefined;
  const mayPrecede = (call: Call, version: Version<unknown>) =>
    version.committedAfter < call.ended && version.at <= call.notAfter;
  const isGone = (call: Call, version: Version<unknown>) =>
    (nexts.get(version as Version)?.committedBefore ?? Number.POSITIVE_INFINITY) < call.begun;
  const seenOf = <Of>(call: Call, list: readonly Version<Of>[]) =>
    list.filter((version) => mayPrecede(call, version) && !isGone(call, version));
  const seen = (call: Call, id: string) => seenOf(call, itemOf(id));
  const mayBe = (call: Call, version: Version<unknown>) =>
    call.by === version.by &&
    mayPrecede(call, version) &&
    version.committedBefore > call.begun &&
    version.at >= call.notBefore;

  // Whoever was answered has seen a version; who asks later sees that one or a later one.
  for (const call of calls) {
    for (const body of shown(call)) {
      const [first] = seen(call, body?.id ?? '').filter(({ row }) => agrees(body, row));
      if (first !== undefined) first.committedBefore = Math.min(first.committedBefore, call.ended);
    }
    if ('lock' in call) {
      const [first] = seenOf(call, log.locks.get(call.lock) ?? []).filter(({ row }) => showsLock(bodyOf(call), row));
      if (first !== undefined) first.committedBefore = Math.min(first.committedBefore, call.ended);
    }
  }
  for (const list of lists) {
    let bound = Number.POSITIVE_INFINITY;
    for (const version of list.toReversed()) {
      bound = Math.min(bound, version.committedBefore);
      version.committedBefore = bound;
    }
  }
  const { items, locks } = log;
  return { calls, broken, versions, items, locks, seqOf, itemOf, seen, seenOf, mayBe, mayPrecede, next };
}

/** The answer shows the lock as it was then. */
export const showsLock = (body: Body, { token, owner, acquired_at: acquired, expires_at: expires }: LockRow): boolean =>
  body?.token === token &&
  body.owner === owner &&
  sameInstant(body.acquired_at, acquired) &&
  sameInstant(body.expires_at, expires);

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
