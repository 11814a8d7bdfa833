/** Durations, with their units in the names (contract §7). */
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
};

export const DEFAULT_SETTINGS: QueueSettings = Object.freeze({
  leaseTtlSeconds: 120,
  leaseTtlSecondsMax: 300,
  startupLeaseSeconds: 120,
  reclaimOlderThanMs: 5_000,
  sweepIntervalMs: 1_000,
  retentionDays: 7,
});
