import { LRUCache } from 'lru-cache';

export type KeyChange = { readonly hash: string; readonly changedAt: string };

/** A key as one look-up found it. */
export type FoundKey<Key> = {
  readonly key: Key;
  /** When it was last changed, as text from the database; null: never. */
  readonly changedAt: string | null;
  /** Until it expires, by the database's clock. */
  readonly remainingMs: number;
};

export type KnownKeysOptions = {
  /** The keys that were changed within the last CHANGES_REACH_SECONDS, the latest first, at most CHANGES_MAX. */
  readChanges(): Promise<readonly KeyChange[]>;
  /** A monotonic clock, in milliseconds. */
  now?: () => number;
};

const KEYS_MAX = 20_000;
/** How far back changes are read: past the longest transaction between a change's stamp and its commit. */
export const CHANGES_REACH_SECONDS = 60;
/** What was read longer ago than this might have been changed without being told: half of the reach. */
const SILENCE_MS_MAX = 30_000;
/** Every key is read anew after this, whatever has happened to its row without a stamp: by hand, by a restored backup. */
const REREAD_MS = 600_000;
/** More than this at once, and everything is read anew. */
export const CHANGES_MAX = 5_000;
/** Changes are asked for in the background when the last answer is older than this, and waited for when it is older than that. */
const REFRESH_MS = 700;
const TRUSTED_MS = 900;

/**
 * Keys that were found valid. A known one costs no statement: one small statement a replica tells which have been changed, at
 * most every REFRESH_MS and only while keys are in use, so that a request is never answered by what was read more than TRUSTED_MS
 * before it arrived. Local time only shortens trust (contract §2; invariant 7).
 */
export function createKnownKeys<Key>({ readChanges, now = () => performance.now() }: KnownKeysOptions) {
  const keys = new LRUCache<string, { key: Key; changedAt: string | null; readAt: number; expiresAt: number }>({
    max: KEYS_MAX,
  });
  /** What the last answer said: a look-up that began before it and ends after it may hold an older truth. */
  let recent: ReadonlyMap<string, string> = new Map();
  /** When the last question that was answered began: all that is known was true then, or later. */
  let checkedAt = Number.NEGATIVE_INFINITY;
  let forgottenBefore = Number.NEGATIVE_INFINITY;
  let checking: Promise<void> | undefined;

  /** One at a time. A failure is told to those who wait; it makes nothing known trusted for longer. */
  function check(): Promise<void> {
    checking ??= ask().finally(() => {
      checking = undefined;
    });
    return checking;
  }

  async function ask(): Promise<void> {
    const beganAt = now();
    const changes = await readChanges();
    const endedAt = now();
    if (changes.length >= CHANGES_MAX) forgetBefore(endedAt);
    else if (endedAt - checkedAt > SILENCE_MS_MAX) forgetBefore(beganAt);
    recent = new Map(changes.map(({ hash, changedAt }) => [hash, changedAt]));
    for (const [hash, changedAt] of recent) if (keys.peek(hash)?.changedAt !== changedAt) keys.delete(hash);
    checkedAt = beganAt;
  }

  function forgetBefore(instant: number): void {
    forgottenBefore = instant;
    for (const [hash, { readAt }] of [...keys.entries()]) if (readAt < instant) keys.delete(hash);
  }

  return {
    /** Undefined: ask the database, and tell with `put`. Throws what `readChanges` throws, rather than trust for too long. */
    async get(hash: string): Promise<Key | undefined> {
      const arrivedAt = now();
      if (arrivedAt - checkedAt > REFRESH_MS) check().catch(() => {}); // whoever has to wait for it is told
      if (!keys.has(hash)) return undefined;
      while (arrivedAt - checkedAt > TRUSTED_MS) await check();
      const known = keys.get(hash);
      if (known === undefined || now() < known.expiresAt) return known?.key;
      keys.delete(hash);
      return undefined;
    },

    /** What a look-up that began at `readAt` (by `now`) has found. */
    put(hash: string, { key, changedAt, remainingMs }: FoundKey<Key>, readAt: number): void {
      if (readAt < forgottenBefore || (recent.get(hash) ?? changedAt) !== changedAt) return;
      keys.set(hash, { key, changedAt, readAt, expiresAt: readAt + Math.min(remainingMs, REREAD_MS) });
    },

    /** Ends when no question is under way. */
    close: async (): Promise<void> => checking?.catch(() => {}),
  };
}
