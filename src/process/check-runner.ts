import { QueueError } from '../queue/errors.ts';
import { WORK_KINDS, type WorkKind } from '../queue/items.ts';
import { checkInteger, checkText, isRecord, LIMITS } from '../queue/limits.ts';
import { checkTtl } from './checks.ts';
import type { Logger } from './handler.ts';
import { checkStall } from './keep-lease.ts';
import type { RunnerOptions } from './runner.ts';

/** The grace: a timer takes no more than 24 days. */
export const RUNNER_LIMITS = { concurrency: 1_000, graceSeconds: 86_400 } as const;
const INTERVAL_MS = { min: 10, max: 3_600_000 };

/** What goes wrong is told also where nobody asked for it. */
const PLAIN: Logger = {
  info() {},
  warn: (details, message) => console.warn(message, details),
  error: (details, message) => console.error(message, details),
};

/** The options with their defaults, and the kinds that there are handlers for. Refuses: invalid_request, naming the option. */
export function checkRunner<Transaction>(options: RunnerOptions<Transaction>) {
  const { store, handlers, workerId, onReclaimed = () => 'run' as const } = options;
  const { concurrency = 4, ttlSeconds = 60, stallSeconds = 0, graceSeconds = 10 } = options;
  const { sweepIntervalMs = 1_000, backstopMs = 5_000, fetch = globalThis.fetch, logger = PLAIN } = options;
  const kinds = checkHandlers(handlers);
  checkInteger('concurrency', concurrency, 1, RUNNER_LIMITS.concurrency);
  checkTtl(ttlSeconds);
  checkStall(stallSeconds);
  checkInteger('sweepIntervalMs', sweepIntervalMs, INTERVAL_MS.min, INTERVAL_MS.max);
  checkInteger('backstopMs', backstopMs, INTERVAL_MS.min, INTERVAL_MS.max);
  checkInteger('graceSeconds', graceSeconds, 0, RUNNER_LIMITS.graceSeconds);
  if (workerId !== undefined) checkText('workerId', workerId, LIMITS.workerIdCharacters);
  checkFunction('onReclaimed', onReclaimed);
  return {
    ...{ store, handlers, kinds, concurrency, claimBy: { ttlSeconds, workerId }, stallSeconds, onReclaimed, fetch },
    ...{ sweepIntervalMs, backstopMs, graceSeconds, logger },
  };
}

function checkHandlers(handlers: unknown): readonly WorkKind[] {
  const named = isRecord(handlers) ? Object.entries(handlers).filter(([, handler]) => handler !== undefined) : [];
  const unknown = named.find(([kind]) => !WORK_KINDS.some((known) => known === kind))?.[0];
  if (unknown !== undefined || named.length === 0) {
    throw new QueueError(
      'invalid_request',
      `handlers must name one or more of ${WORK_KINDS.join(', ')}${unknown === undefined ? '' : `, not ${unknown}`}`,
    );
  }
  for (const [kind, handler] of named) checkFunction(`handlers.${kind}`, handler);
  return WORK_KINDS.filter((kind) => named.some(([name]) => name === kind));
}

function checkFunction(field: string, value: unknown): void {
  if (typeof value !== 'function') throw new QueueError('invalid_request', `${field} must be a function`);
}
