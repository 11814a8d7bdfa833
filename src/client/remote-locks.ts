import { type SingleFlightOptions, singleFlight } from '../flight/single-flight.ts';
import type { LockStore } from '../flight/store.ts';
import { type ClientOptions, ControlError, checkAccess } from './call.ts';
import { createControlClient } from './control-client.ts';
import { createLockReleases } from './lock-releases.ts';

export type RemoteLocksOptions = ClientOptions & {
  /** `apiKey` may also be one of its environment keys, or the sessions token of one of its items. */
  readonly environmentId: string;
};

/**
 * Single flight over HTTP, with the locks of one environment. Whoever waits is told of a release by the environment's events, of which one stream is
 * open while anybody waits; while it is not, it asks again after 250 ms, doubling to 5 s. Nobody waits past the expiry.
 * Throws TypeError where an option is missing.
 */
export function createRemoteLocks({ environmentId, ...options }: RemoteLocksOptions) {
  checkAccess(options, { environmentId });
  const client = createControlClient(options);

  const store: LockStore = {
    async acquire(name, owner, ttlSeconds) {
      try {
        const lock = await client.acquireLock(environmentId, name, { owner, ttl_seconds: ttlSeconds });
        return { token: lock.token, expiresInMs: lock.expires_in_ms };
      } catch (error) {
        const { locked, expires_in_ms: expiresInMs } = detailsOf(error);
        if (locked !== true) throw error;
        return { token: undefined, expiresInMs: Number(expiresInMs) };
      }
    },
    async renew(name, token, ttlSeconds, signal) {
      try {
        const lock = await client.renewLock(environmentId, name, { token, ttl_seconds: ttlSeconds }, { signal });
        return lock.expires_in_ms;
      } catch (error) {
        if (detailsOf(error).error_code === 'lock_lost') return undefined;
        throw error;
      }
    },
    release: async (name, token, signal) => void (await client.releaseLock(environmentId, name, { token }, { signal })),
    ...createLockReleases(options, environmentId),
  };

  return {
    /** What `check` finds or `run` makes, of which one runs at a time, on whatever machine. May throw ControlError, LockLost, the signal's reason, and what `check` and `run` throw. */
    singleFlight: <Result>(name: string, flight: SingleFlightOptions<Result>): Promise<Result> =>
      singleFlight(store, name, crypto.randomUUID(), flight),
  };
}

export type RemoteLocks = ReturnType<typeof createRemoteLocks>;

const detailsOf = (error: unknown): Readonly<Record<string, unknown>> =>
  error instanceof ControlError ? (error.details ?? {}) : {};
