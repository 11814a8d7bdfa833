import rateLimit from '@fastify/rate-limit';
import type { FastifyRequest } from 'fastify';
import { LIMITS } from '../queue/limits.ts';
import type { App } from './app.ts';
import { HttpError } from './errors.ts';

/** Far above the official cadence, at most one poll a second and two heartbeats a minute, also where a fleet shares its key. */
export const REQUESTS_PER_SECOND_DEFAULT = 2_000;
/** How many callers are counted at a time, in this process. */
const CALLERS_MAX = 20_000;

/**
 * Whose requests are counted together: a key's, by worker id where one is told, else by work item where there is one in the path: a fleet on one key, of clients that
 * do not say who they are, is not one caller. It is a bound for the careless: whoever holds a key may call itself what it likes.
 */
function callerOf({ caller, headers, params }: FastifyRequest): string {
  if (caller === undefined) return '';
  if (caller.kind === 'session') return caller.workId;
  const workerId = headers['anthropic-worker-id'];
  // What is no worker id is not remembered, however long it is.
  const isWorkerId = typeof workerId === 'string' && workerId.length <= LIMITS.workerIdCharacters;
  const { work_id: workId = '' } = params as Record<string, string | undefined>;
  return `${caller.keyId} ${isWorkerId ? workerId : workId}`;
}

/**
 * Refuses with 429 what a caller asks past its limit within a second; 0 counts nothing. Only who is known is counted, and a refusal asks for another
 * try: it ends no worker.
 */
export function registerRateLimit(app: App, requestsPerSecondMax: number): void {
  if (requestsPerSecondMax === 0) return;
  app.register(rateLimit, { global: false, cache: CALLERS_MAX });
  app.after(() => {
    const count = app.createRateLimit({
      max: requestsPerSecondMax,
      timeWindow: 1_000,
      keyGenerator: callerOf,
    });
    app.addHook('onRequest', async (request) => {
      if (request.caller === undefined) return;
      const outcome = await count(request);
      if (!outcome.isAllowed && outcome.isExceeded) {
        throw new HttpError('rate_limited', `more than ${requestsPerSecondMax} requests a second of one caller`);
      }
    });
  });
}
