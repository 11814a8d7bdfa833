import { setImmediate } from 'node:timers/promises';
import type { Clock } from '../../src/flight/clock.ts';
import type { LockStore } from '../../src/flight/store.ts';

/** A clock that goes when it is told to; what follows from each timer is done before the next one. */
export function handClock() {
  let now = 0;
  const timers = new Set<{ at: number; run: () => void }>();
  const settle = async () => {
    for (let n = 0; n < 5; n++) await setImmediate();
  };
  const clock: Clock = {
    now: () => now,
    after(milliseconds, run) {
      const timer = { at: now + milliseconds, run };
      timers.add(timer);
      return () => timers.delete(timer);
    },
  };
  return {
    clock,
    settle,
    timers: () => timers.size,
    async pass(milliseconds: number): Promise<void> {
      const end = now + milliseconds;
      for (;;) {
        await settle();
        const [next] = [...timers].filter(({ at }) => at <= end).sort((one, other) => one.at - other.at);
        if (next === undefined) break;
        timers.delete(next);
        now = Math.max(now, next.at);
        next.run();
      }
      now = end;
      await settle();
    },
  };
}

/** Locks in memory, by the same rules as the tables'; a test may keep releases from being heard, and calls from being answered. */
export function lockDesk(clock: Clock) {
  const held = new Map<string, { owner: string; token: number; expiresAt: number }>();
  const listeners = new Set<{ name: string; tell: () => void }>();
  const calls: string[] = [];
  let tokens = 0;
  const liveOf = (name: string) => {
    const lock = held.get(name);
    return lock !== undefined && lock.expiresAt > clock.now() ? lock : undefined;
  };
  const desk = {
    calls,
    liveOf,
    listeners,
    /** Asked before each call acts: what it throws, or waits for, the caller gets. */
    before: async (_verb: 'acquire' | 'renew' | 'release'): Promise<void> => {},
    tell: (name: string) => {
      for (const listener of listeners) if (listener.name === name) listener.tell();
    },
    drop: (name: string) => void held.delete(name),
  };
  const store: Required<LockStore> = {
    async acquire(name, owner, ttlSeconds) {
      calls.push('acquire');
      await desk.before('acquire');
      const live = liveOf(name);
      const expiresAt = clock.now() + ttlSeconds * 1_000;
      if (live === undefined) held.set(name, { owner, token: ++tokens, expiresAt });
      else if (live.owner === owner) live.expiresAt = Math.max(live.expiresAt, expiresAt);
      const lock = held.get(name) ?? { owner: '', token: 0, expiresAt };
      return { token: lock.owner === owner ? lock.token : undefined, expiresInMs: lock.expiresAt - clock.now() };
    },
    async renew(name, token, ttlSeconds) {
      calls.push('renew');
      await desk.before('renew');
      const live = liveOf(name);
      if (live?.token !== token) return undefined;
      live.expiresAt = Math.max(live.expiresAt, clock.now() + ttlSeconds * 1_000);
      return live.expiresAt - clock.now();
    },
    async release(name, token) {
      calls.push('release');
      await desk.before('release');
      if (liveOf(name)?.token !== token) return;
      held.delete(name);
      desk.tell(name);
    },
    onRelease(name, tell) {
      const listener = { name, tell };
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    isTold: () => true,
  };
  return { desk, store };
}
