import { hostname } from 'node:os';
import type { Queue } from '../create-queue.ts';
import type { Database } from '../db/connect.ts';
import { type SingleFlightOptions, singleFlight } from '../flight/single-flight.ts';
import type { LockStore } from '../flight/store.ts';
import { mintId } from '../queue/ids.ts';
import { acquireLock, type LockRequest, takeLock } from './acquire.ts';
import { type LockPage, listLocks } from './list.ts';
import { checkLock, checkLockTtl, type Lock, type LockProof } from './lock.ts';
import { isLockLost, renewLock } from './renew.ts';
import { releaseLock } from './release.ts';

export type LocksOptions = {
  readonly database: Database;
  /** Tells of releases: here at once, and on other replicas once it is started. */
  readonly queue: Pick<Queue, 'hint' | 'onHint' | 'isListening'>;
  readonly environmentId: string;
};

type Unbound<Request> = Omit<Request, 'environmentId'>;

const HOST_CHARACTERS_MAX = 64;

/** The locks of one environment. Every method may throw DatabaseUnavailable, and refuses: environment_not_found, invalid_request. */
export function createLocks({ database: { aside: database }, queue, environmentId }: LocksOptions) {
  /** True when this call let it go, and not when the token no longer held it. Whoever waits for it is told. */
  const release = async ({ name, token }: Unbound<LockProof>): Promise<boolean> => {
    const isReleased = await releaseLock(database, { environmentId, name, token });
    if (isReleased) queue.hint(environmentId, { type: 'lock_released', name });
    return isReleased;
  };

  const store: LockStore = {
    async acquire(name, owner, ttlSeconds) {
      const lock = await takeLock(database, { environmentId, name, owner, ttlSeconds });
      return { token: lock.owner === owner ? lock.token : undefined, expiresInMs: lock.expiresInMs };
    },
    renew: (name, token, ttlSeconds) =>
      renewLock(database, { environmentId, name, token }, ttlSeconds).then(
        ({ expiresInMs }) => expiresInMs,
        (error: unknown) => {
          if (isLockLost(error)) return undefined;
          throw error;
        },
      ),
    release: async (name, token) => void (await release({ name, token })),
    onRelease: (name, listener) =>
      queue.onHint(environmentId, (hint) => {
        if (hint.type === 'hints_missed' || (hint.type === 'lock_released' && hint.name === name)) listener();
      }),
    isTold: queue.isListening,
  };

  return {
    /** Also refuses: conflict while another owner holds it. The same owner gets the same token, and the longer expiry. */
    acquire: (request: Unbound<LockRequest>): Promise<Lock> => acquireLock(database, { environmentId, ...request }),

    /** `ttlSeconds` 1 to 3600, default 60; never shortens it. Also refuses: conflict once the token no longer holds it. */
    renew: ({ name, token }: Unbound<LockProof>, ttlSeconds?: number): Promise<Lock> =>
      renewLock(database, { environmentId, name, token }, ttlSeconds),

    release,

    /** What is held now, the last acquired first; `limit` 1 to 1000, default 20. */
    list: (page?: { limit?: number | undefined; page?: string | undefined }): Promise<LockPage> =>
      listLocks(database, environmentId, page),

    /** What `check` finds or `run` makes, of which one runs at a time: see `singleFlight`. Waits for no event while the queue does not listen, and looks every 5 s. */
    async singleFlight<Result>(name: string, options: SingleFlightOptions<Result>): Promise<Result> {
      checkLock({ environmentId, name });
      if (options.ttlSeconds !== undefined) checkLockTtl(options.ttlSeconds);
      // An owner for each: two flights of one process must not share a lock.
      const owner = `${hostname().slice(0, HOST_CHARACTERS_MAX)} ${mintId('flight')}`;
      return singleFlight(store, name, owner, options);
    },
  };
}

export type Locks = ReturnType<typeof createLocks>;
