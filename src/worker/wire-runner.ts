import { hostname } from 'node:os';
import type { Static } from 'typebox';
import { ControlError, createCall, wait } from '../client/call.ts';
import { openEvents } from '../client/open-events.ts';
import type { QueueTransaction } from '../db/connect.ts';
import { checkRunner } from '../process/check-runner.ts';
import { createRunner, type RunnerOptions } from '../process/runner.ts';
import { QueueError } from '../queue/errors.ts';
import { mintId } from '../queue/ids.ts';
import { checkText, LIMITS } from '../queue/limits.ts';
import type { Caller } from '../wire/caller.ts';
import { createWireStore, isTransient, WIRE_KIND } from './wire-store.ts';

export type WireRunnerOptions<Transaction = QueueTransaction> = Omit<
  RunnerOptions<Transaction>,
  'store' | 'sweepIntervalMs'
> & {
  /** Where the server is, without a path of ours. */
  readonly url: string;
  /** An environment key: the environment is told by it. */
  readonly key: string;
};

const ADDRESS_CHARACTERS_MAX = 2_048;
/** An event stream that was refused is asked for again after this. */
const AGAIN_MS = 30_000;
/** The key is not, or no longer, good for this: another try would be answered the same. */
const FINAL: readonly (number | undefined)[] = [401, 403, 404];

/**
 * The in-process runner with the same handlers, over HTTP: told of work by the environment's events, and looking by itself in case nothing comes
 * (`backstopMs`, default 5000). `run(signal)` ends as the runner's does, and throws ControlError when the server refuses the key. There are
 * no transactions here: `tx`, `enqueue` and a settlement fail; what is to be kept of the work is answered as `{ result }`. Refuses: invalid_request.
 */
export function createWireRunner<Transaction = QueueTransaction>(options: WireRunnerOptions<Transaction>) {
  const { url, key, workerId = `${hostname()}-${mintId('worker')}`, fetch = globalThis.fetch, ...others } = options;
  checkText('url', url, ADDRESS_CHARACTERS_MAX);
  checkText('key', key, LIMITS.tokenCharacters);
  if (!/^https?:\/\//.test(url) || !URL.canParse(url)) {
    throw new QueueError('invalid_request', 'url must be an address, such as http://127.0.0.1:8080');
  }
  if (!/^[\x20-\x7e]+$/.test(workerId)) {
    throw new QueueError('invalid_request', 'workerId must be printable ASCII: it goes in a header');
  }
  const listeners = new Set<() => void>();
  const onWork = (listener: () => void) => {
    listeners.add(listener);
    return () => void listeners.delete(listener);
  };
  const client = { baseUrl: url, apiKey: key, fetch, retriesMax: Number.POSITIVE_INFINITY };
  const runnerOf = (environmentId: string, onRefused: (error: ControlError) => void) => {
    const store = createWireStore<Transaction>({ url, key, environmentId, workerId, fetch, onWork });
    const claim: typeof store.claim = async (...asked) => {
      try {
        return await store.claim(...asked);
      } catch (error) {
        if (!(error instanceof ControlError) || !FINAL.includes(error.status)) throw error;
        onRefused(error);
        return null;
      }
    };
    return createRunner<Transaction>({ ...others, workerId, fetch, store: { ...store, claim } });
  };
  const store = createWireStore<Transaction>({ url, key, environmentId: '', workerId, fetch, onWork });
  const { logger } = checkRunner<Transaction>({ ...others, workerId, store });
  if (others.handlers[WIRE_KIND] === undefined) {
    throw new QueueError('invalid_request', `handlers must have one for ${WIRE_KIND}: nothing else goes over the wire`);
  }

  /** Hints, whenever the server has any. */
  async function listen(environmentId: string, signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      try {
        for await (const { type } of openEvents(client, environmentId, { signal })) {
          if (type !== 'stop_requested' && type !== 'lock_released') for (const listener of listeners) listener();
        }
      } catch (error) {
        logger.warn({ err: error }, 'work is looked for by the clock alone: there is no event stream');
      }
      await wait(AGAIN_MS, signal).catch(() => {});
    }
  }

  /** Asks until there is an answer; undefined: it was not waited for. Throws ControlError. Refuses: invalid_request. */
  async function environmentOf(signal: AbortSignal): Promise<string | undefined> {
    while (!signal.aborted) {
      try {
        const { environment_id } = await createCall({ ...client, retriesMax: 4 })<Static<typeof Caller>>(
          ...(['GET', '/caller', { signal }] as const),
        );
        if (environment_id !== null) return environment_id;
        throw new QueueError('invalid_request', 'key must be an environment key, not an API key');
      } catch (error) {
        if (signal.aborted) return undefined;
        if (!isTransient(error)) throw error;
        logger.warn({ err: error }, 'the server does not answer yet');
      }
    }
    return undefined;
  }

  return {
    async run(signal: AbortSignal): Promise<void> {
      const ended = new AbortController();
      const end = () => ended.abort();
      signal.addEventListener('abort', end, { once: true });
      let refusal: ControlError | undefined;
      try {
        const environmentId = await environmentOf(signal);
        if (environmentId === undefined) return;
        const runner = runnerOf(environmentId, (error) => {
          refusal = error;
          end();
        });
        const listening = listen(environmentId, ended.signal);
        if (signal.aborted) end();
        await runner.run(ended.signal);
        end();
        await listening;
      } finally {
        signal.removeEventListener('abort', end);
      }
      if (refusal !== undefined) throw refusal;
    },
  };
}

export type WireRunner = ReturnType<typeof createWireRunner>;
