import { type RawBuilder, sql } from 'kysely';
import type { Database } from '../db/connect.ts';
import { fixed, givenLater, rfc3339 } from '../db/sql.ts';
import { QueueError } from './errors.ts';
import type { WorkRef, WorkState } from './items.ts';
import {
  type HELD,
  type Locking,
  isPolled,
  isThere,
  lockClause,
  type Missing,
  missing,
  missingColumns,
  readShape,
  type SetShape,
  setShape,
} from './sets.ts';
import type { QueueSettings } from './settings.ts';

/** Claims a `starting` item that has no heartbeat yet (contract §5). */
export const NO_HEARTBEAT = 'NO_HEARTBEAT';

export type HeartbeatRequest = WorkRef & {
  /** The last heartbeat the caller knows of, byte for byte, or `NO_HEARTBEAT`. */
  readonly expectedLastHeartbeat: string;
  /** Clamped to the environment's maximum; null: its default. */
  readonly desiredTtlSeconds: number | null;
  /** The client says that it sends this again because the first answer was lost (contract §5). */
  readonly isRetry: boolean;
};

export type Heartbeat = {
  readonly lastHeartbeat: string | null;
  /** False on an item that is winding down or over. */
  readonly leaseExtended: boolean;
  readonly state: WorkState;
  /** The TTL in force, > 0. */
  readonly ttlSeconds: number;
};

type Args = Pick<QueueSettings, 'leaseTtlSeconds' | 'leaseTtlSecondsMax'> & {
  readonly requests: readonly HeartbeatRequest[];
};

const statement = fixed<Args, Row, SetShape>((value, names, shape) => {
  const [locking, extent] = readShape(shape);
  const { workItems, environments } = names;
  const ttlSeconds = (
    desired: RawBuilder<unknown>,
  ) => sql`least(coalesce(${desired}, e.lease_ttl_seconds, ${value((of) => of.leaseTtlSeconds)}::integer),
    coalesce(e.lease_ttl_max_seconds, ${value((of) => of.leaseTtlSecondsMax)}::integer))`;
  return sql`
    with wanted as materialized (
      select t.environment_id, t.id, t.expected, t.desired, t.is_retry, t.slot
      from ${givenLater(
        value,
        ({ requests }) => requests,
        {
          environment_id: ['text', (r) => r.environmentId],
          id: ['text', (r) => r.id],
          expected: ['text', (r) => r.expectedLastHeartbeat],
          desired: ['integer', (r) => r.desiredTtlSeconds],
          is_retry: ['boolean', (r) => r.isRetry],
        },
        extent,
      )}
    ), current as materialized (
      select wanted.slot, w.seq, w.state, w.last_heartbeat, ${ttlSeconds(sql`wanted.desired`)} as ttl_seconds,
        coalesce(w.lease_ttl_seconds, ${ttlSeconds(sql`null::integer`)}) as lease_ttl_seconds,
        case
          when w.state = 'starting' and wanted.expected = ${sql.lit(NO_HEARTBEAT)} then 'beat'
          when w.state = 'active' and wanted.expected = ${rfc3339(sql`w.last_heartbeat`)} then 'beat'
          when w.state = 'active' and wanted.is_retry
            and wanted.expected = coalesce(${rfc3339(sql`w.replaced_heartbeat`)}, ${sql.lit(NO_HEARTBEAT)}) then 'replay'
          when w.state = 'stopping' then 'over'
          when w.state = 'stopped' and (w.started_at is not null or w.lapsed_state = 'active') then 'over'
          else 'refused'
        end as decision
      from ${workItems} w join wanted on wanted.id = w.id
        join ${environments} e on e.id = w.environment_id
      where ${isThere} and ${isPolled}
      order by w.seq ${lockClause(locking)}
    ), extended as (
      update ${workItems} w
      set state = 'active', started_at = coalesce(w.started_at, clock_timestamp()),
        last_heartbeat = case c.decision when 'beat'
          then greatest(clock_timestamp(), w.last_heartbeat + interval '1 microsecond') else w.last_heartbeat end,
        replaced_heartbeat = case c.decision when 'beat' then w.last_heartbeat else w.replaced_heartbeat end,
        lease_expires_at = clock_timestamp() + c.ttl_seconds * interval '1 second', lease_ttl_seconds = c.ttl_seconds
      from current c where w.seq = c.seq and c.decision in ('beat', 'replay')
      returning c.slot, w.seq, w.state, w.last_heartbeat, w.lease_ttl_seconds
    )
    select wanted.expected, c.decision, coalesce(x.state, c.state) as state,
      ${rfc3339(sql`coalesce(x.last_heartbeat, c.last_heartbeat)`)} as "lastHeartbeat",
      coalesce(x.lease_ttl_seconds, c.lease_ttl_seconds) as "ttlSeconds", x.seq is not null as "leaseExtended",
      ${missingColumns(names, locking, sql`c.seq`)}
    from wanted full join current c on c.slot = wanted.slot full join extended x on x.slot = c.slot
    order by wanted.slot`;
});

/**
 * Extends the leases of a set of items (distinct ids), answers in the order asked. The token is compared as text and the
 * new one is the database's own instant, strictly increasing; a marked retry of the beat before is answered with the
 * current token. Writes no indexed column but the state, and that only on starting → active.
 * Refuses, each for itself: not_found; precondition_failed, with the current state in `details`.
 */
export async function heartbeat(
  database: Database,
  requests: readonly HeartbeatRequest[],
  { leaseTtlSeconds, leaseTtlSecondsMax }: Pick<QueueSettings, 'leaseTtlSeconds' | 'leaseTtlSecondsMax'>,
  locking: Locking = 'wait',
): Promise<(Heartbeat | QueueError | typeof HELD)[]> {
  const args = { requests, leaseTtlSeconds, leaseTtlSecondsMax };
  const rows = await database.rows(statement(database.names, args, setShape(locking, requests)));
  return rows.map((row) => {
    if (row.state === null) return missing(row);
    const { lastHeartbeat, leaseExtended, state, ttlSeconds } = row;
    if (row.decision !== 'refused') return { lastHeartbeat, leaseExtended, state, ttlSeconds };
    return new QueueError('precondition_failed', refusal(state, row.expected), {
      details: {
        error_code: 'heartbeat_precondition_failed',
        current_state: { state, last_heartbeat: lastHeartbeat, lease_extended: false, ttl_seconds: ttlSeconds },
      },
    });
  });
}

type Row = Missing &
  Omit<Heartbeat, 'state'> & {
    expected: string;
    decision: 'beat' | 'replay' | 'over' | 'refused' | null;
    state: WorkState | null;
  };

/** Says which of the three it is: never acked, claimed by another holder, or a stale token (contract §5). */
function refusal(state: WorkState, expected: string): string {
  if (state === 'queued') return 'the work item was never acked: ack it before the first heartbeat';
  if (state === 'starting') return `stale token: the work item has no heartbeat yet, expected ${NO_HEARTBEAT}`;
  if (state === 'stopped') return 'the work item was stopped before its first heartbeat';
  return expected === NO_HEARTBEAT
    ? 'the work item was claimed by another holder: it already has a heartbeat'
    : 'stale token: expected_last_heartbeat is not the current last_heartbeat';
}
