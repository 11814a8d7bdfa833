export type Attempt = {
  /** The fencing token, when the lock is ours; undefined while another holds it. */
  readonly token: number | undefined;
  /** From when it was answered to the expiry, whoever holds it; at least 1. */
  readonly expiresInMs: number;
};

export type LockStore = {
  /** Once more by the same owner is answered the same token. */
  acquire(name: string, owner: string, ttlSeconds: number): Promise<Attempt>;
  /** How long it lasts from when it was answered, in milliseconds; undefined: it is no longer ours. */
  renew(name: string, token: number, ttlSeconds: number, signal: AbortSignal): Promise<number | undefined>;
  release(name: string, token: number, signal: AbortSignal): Promise<void>;
  /** Tells that it was released, perhaps; answers what ends it. */
  onRelease?(name: string, listener: () => void): () => void;
  /** Whether releases are told of just now, also those of other processes. Default: when there is an `onRelease`. */
  isTold?(): boolean;
};
