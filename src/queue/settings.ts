/**
 * What holds where an environment has no setting of its own (contract §7). Durations have their units in the names.
 */
export type QueueSettings = {
  /** Heartbeat TTL when none is desired. */
  readonly leaseTtlSeconds: number;
  /** What a desired TTL is clamped to. */
  readonly leaseTtlSecondsMax: number;
  /** From the ack to the first heartbeat. */
  readonly startupLeaseSeconds: number;
  /** The reservation, when a poll names none. */
  readonly reclaimOlderThanMs: number;
  readonly sweepIntervalMs: number;
  readonly retentionDays: number;
  /** An item that was handed out this often without finishing is set aside; null: never. */
  readonly maxHandOuts: number | null;
  /** In the process lane: taken over from that many dead claimants, an item is set aside by the next one. */
  readonly maxHandOvers: number;
  /** Failed that often, an item is set aside. */
  readonly maxAttempts: number;
};

export const DEFAULT_SETTINGS: QueueSettings = Object.freeze({
  leaseTtlSeconds: 120,
  leaseTtlSecondsMax: 300,
  startupLeaseSeconds: 120,
  reclaimOlderThanMs: 5_000,
  sweepIntervalMs: 1_000,
  retentionDays: 7,
  maxHandOuts: null,
  maxHandOvers: 10,
  maxAttempts: 25,
});
