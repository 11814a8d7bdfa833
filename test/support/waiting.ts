import type { Test } from 'tap';
import type { Database } from '../../src/db/connect.ts';
import { STATEMENTS, watch } from './gates.ts';
import { type Answer, testDatabase, testServer, until } from './harness.ts';

/** What ends a wait ends it well before the time is up. */
export const BLOCK_MS = 999;
export const IN_TIME_MS = 900;
const TRIES_MAX = 8;

export type Timed = { answer: Answer; ms: number };

/**
 * A server whose looks are watched, and who waits there is not looked for by the clock: what it gets it was woken for. `wait` returns once its poll is known to wait: a look found nothing for it. Servers of
 * one file may share a database, each has an environment of its own: starting PGlite takes seconds.
 */
export async function waitingServer(t: Test, options: { plain?: Database; background?: boolean } = {}) {
  const plain = options.plain ?? (await testDatabase(t));
  const looks = watch(plain, STATEMENTS.look);
  const overs = watch(looks.database, STATEMENTS.lookOver);
  overs.fail(new Error('nobody looks over all'));
  const server = await testServer(t, { database: overs.database, background: options.background ?? false });
  if (options.background) await until('the server listens', () => server.queue.isListening());
  const poll = async (blockMs?: number): Promise<Timed> => {
    const start = performance.now();
    const answer = await server.call('GET', server.work(`/poll${blockMs === undefined ? '' : `?block_ms=${blockMs}`}`));
    return { answer, ms: performance.now() - start };
  };
  const wait = async (blockMs = BLOCK_MS): Promise<{ ended: Promise<Timed> }> => {
    const looked = looks.ended();
    const ended = poll(blockMs);
    await until('the poll was looked for', () => looks.ended() > looked);
    return { ended };
  };
  return { ...server, plain, looks, poll, wait };
}

/**
 * Where only the time tells what ended a wait, a machine that stands still for a moment tells nothing: the quickest of a few tries counts. What
 * is never woken is quick in none of them.
 */
export async function quickest(inTimeMs: number, attempt: (n: number) => Promise<number>): Promise<number> {
  let least = Number.POSITIVE_INFINITY;
  for (let n = 0; n < TRIES_MAX && least >= inTimeMs; n++) least = Math.min(least, await attempt(n));
  return least;
}

/** The poll got the item, because it was woken: when its time is up it is answered without another look. */
export const gotIt = (t: Test, { answer }: Timed, id: string): void => void t.equal(answer.json?.id, id);
