import { type Answer, type CallOptions, OPERATOR_KEY, type Server } from './harness.ts';

/** An environment's settings and its pause, as an operator. */
export function settingsOf({ call }: Pick<Server, 'call'>, environmentId: string) {
  const path = `/control/v1/environments/${environmentId}`;
  const as = OPERATOR_KEY;
  return {
    read: (): Promise<Answer> => call('GET', `${path}/settings`, { as }),
    change: (body: unknown, options: CallOptions = {}): Promise<Answer> =>
      call('PATCH', `${path}/settings`, { as, body, ...options }),
    pause: (): Promise<Answer> => call('POST', `${path}/pause`, { as }),
    resume: (): Promise<Answer> => call('POST', `${path}/resume`, { as }),
  };
}

/** What no environment of a test has by itself: each a value of its own. */
export const PROCESS = {
  leaseTtlSeconds: 100,
  leaseTtlSecondsMax: 200,
  startupLeaseSeconds: 50,
  reclaimOlderThanMs: 7_000,
  maxHandOuts: 9,
  maxAttempts: 8,
  retentionDays: 5,
};

/** The same as the wire has it. */
export const PROCESS_FIELDS = {
  lease_ttl_seconds: 100,
  lease_ttl_max_seconds: 200,
  startup_lease_seconds: 50,
  reclaim_older_than_ms: 7_000,
  max_hand_outs: 9,
  max_attempts: 8,
  retention_days: 5,
  fallback_after_ms: null,
};

export const NONE_OWN = {
  lease_ttl_seconds: null,
  lease_ttl_max_seconds: null,
  startup_lease_seconds: null,
  reclaim_older_than_ms: null,
  max_hand_outs: null,
  max_attempts: null,
  retention_days: null,
  fallback_after_ms: null,
};
