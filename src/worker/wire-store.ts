import type { Static } from 'typebox';
import { ControlError, createCall, path } from '../client/call.ts';
import type { Claimed } from '../process/claim.ts';
import { messageOf } from '../process/error-message.ts';
import { type Lease, LeaseError } from '../process/lease.ts';
import type { Renewal, RunnerStore, Settled } from '../process/store.ts';
import { checkInput } from '../queue/check-enqueue.ts';
import { QueueError } from '../queue/errors.ts';
import type { WorkInput } from '../wire/enqueue.ts';
import type { WorkRelease } from '../wire/outcome.ts';
import type { Work, WorkHeartbeat } from '../wire/work.ts';
import { asWireLease, cancelledOverWire, lostOverWire, type WireLease } from './wire-lease.ts';

export type WireStoreOptions = {
  /** Where the server is, without a path of ours. */
  readonly url: string;
  /** An environment key. */
  readonly key: string;
  readonly environmentId: string;
  /** Who polls: 1 to 256 characters. */
  readonly workerId: string;
  readonly fetch: typeof fetch;
  /** Told when there may be work; a hint. Answers what ends it. */
  readonly onWork: (listener: () => void) => () => void;
};

type Call = ReturnType<typeof createCall>;

/** All that goes over the wire. */
export const WIRE_KIND = 'tool_exec' as const;
const NO_HEARTBEAT = 'NO_HEARTBEAT';
/** Of the first heartbeat: when its answer is lost the item may be held already, by nobody who knows. */
const FIRST_BEATS_MAX = 3;
/** How the official clients mark what they send again (contract §5). */
const RETRIED = { 'x-stainless-retry-count': '1' };

/**
 * The wire lane as a store that a runner takes its work from, over HTTP. It knows no transactions: `transaction`, `assert` and `enqueue`
 * are refused. What the server does not answer, or asks to be tried again, fails with the code `unavailable`.
 */
export function createWireStore<Transaction>({
  url,
  key,
  environmentId,
  workerId,
  fetch,
  onWork,
}: WireStoreOptions): RunnerStore<Transaction> {
  const options = { baseUrl: url, fetch, retriesMax: 0 };
  const wire = orUnavailable(createCall({ ...options, apiKey: key }, '/v1'));
  const work = path`/environments/${environmentId}/work`;
  const own = ({ id }: WireLease) => `${work}${path`/${id}`}`;
  const asHolder = ({ sessionsToken }: WireLease) => orUnavailable(createCall({ ...options, apiKey: sessionsToken }));

  async function renew(given: Lease, ttlSeconds: number, { isRetry = false } = {}): Promise<Renewal> {
    const lease = asWireLease(given);
    const askedAtMs = performance.now();
    try {
      const beat = await wire<Static<typeof WorkHeartbeat>>('POST', `${own(lease)}/heartbeat`, {
        query: { expected_last_heartbeat: lease.heartbeat, desired_ttl_seconds: ttlSeconds },
        headers: isRetry ? RETRIED : {},
      });
      const isCancelRequested = beat.state === 'stopping';
      const asked: WireLease = Object.freeze({ ...lease, isCancelRequested });
      if (!beat.lease_extended || beat.last_heartbeat === null) {
        if (isCancelRequested) return { outcome: 'renewed', lease: asked, isCancelRequested };
        return { outcome: 'lost', error: lostOverWire(lease, new Error(`it is ${beat.state}`)) };
      }
      const renewed: WireLease = { ...asked, heartbeat: beat.last_heartbeat, askedAtMs, ttlSeconds: beat.ttl_seconds };
      return { outcome: 'renewed', lease: Object.freeze(renewed), isCancelRequested };
    } catch (error) {
      return isRefusal(error) ? { outcome: 'lost', error: lostOverWire(lease, error) } : { outcome: 'deferred', error };
    }
  }

  /** The first heartbeat makes the item this worker's. */
  async function begin(reserved: WireLease, ttlSeconds: number): Promise<WireLease> {
    for (let beats = 1; ; beats++) {
      const renewal = await renew(reserved, ttlSeconds, { isRetry: beats > 1 });
      if (renewal.outcome === 'renewed') return asWireLease(renewal.lease);
      if (renewal.outcome === 'lost' || beats >= FIRST_BEATS_MAX) throw renewal.error;
    }
  }

  async function take(polled: Work, ttlSeconds: number): Promise<Claimed> {
    const secret = Buffer.from(polled.secret ?? '', 'base64url').toString();
    const { sessions_token: sessionsToken } = JSON.parse(secret);
    const acked = await wire<Work>('POST', `${work}${path`/${polled.id}`}/ack`);
    const { id } = acked;
    const reserved: WireLease = {
      ...{ environmentId, id, sessionsToken, heartbeat: NO_HEARTBEAT, isCancelRequested: false },
      ...{ seq: id, workerId, handOut: 0, expiresAt: '', askedAtMs: performance.now(), ttlSeconds },
    };
    try {
      // Before the item is held: what fails here leaves it as one that nobody has begun.
      const given = await asHolder(reserved)<Static<typeof WorkInput>>('GET', `${own(reserved)}/input`);
      if (typeof given.seq !== 'string') {
        throw new QueueError(
          'unavailable',
          'the server is of a version before this one: it tells no worker what it needs',
        );
      }
      return toClaimed(acked, given, await begin(reserved, ttlSeconds));
    } catch (error) {
      if (!isRefusal(error)) await end(reserved, 'POST', '/release', {}).catch(() => {}); // it lapses all the same
      throw error;
    }
  }

  /** Ends this hand-out, by its token. */
  async function end(given: Lease, method: 'POST' | 'PATCH', verb: string, body: object): Promise<Settled> {
    const lease = asWireLease(given);
    try {
      const { state } = await asHolder(lease)<Static<typeof WorkRelease>>(method, `${own(lease)}${verb}`, { body });
      return { state, reason: null, nextAttemptAt: null, retryInMs: null };
    } catch (error) {
      if (!isRefusal(error)) throw error;
      throw error.status === 400 ? new QueueError('invalid_request', error.message) : lostOverWire(lease, error);
    }
  }

  return {
    async claim(what, { ttlSeconds }) {
      if (what !== WIRE_KIND) return null;
      const polled = await wire<Work | null>('GET', `${work}/poll`, { headers: { 'anthropic-worker-id': workerId } });
      if (polled === null) return null;
      try {
        return await take(polled, ttlSeconds);
      } catch (error) {
        if (isRefusal(error) || error instanceof LeaseError) return null; // another has it by now, or it was ended
        throw error;
      }
    },
    expired: async () => [],
    reclaim: async () => null,
    onWork: (_kinds, listener) => onWork(listener),
    renew,
    async complete(lease, { result, unlessCancelled = false } = {}) {
      if (unlessCancelled && asWireLease(lease).isCancelRequested) throw cancelledOverWire(lease);
      if (result !== undefined) checkInput('result', result); // as the in-process lane says it
      return end(lease, 'PATCH', '', { status: 'succeeded', result });
    },
    fail: (lease, error, { isFinal = false } = {}) =>
      end(lease, 'PATCH', '', { status: 'failed', error: messageOf(error) || 'no message', final: isFinal }),
    requeue: (lease) => end(lease, 'POST', '/release', {}),
    transaction: noTransactions,
    assert: noTransactions,
    enqueue: async () => {
      throw new QueueError('invalid_request', 'a worker may not enqueue: its key is for taking work');
    },
  };
}

const toClaimed = (acked: Work, given: Static<typeof WorkInput>, lease: WireLease): Claimed =>
  Object.freeze({
    ...{ id: acked.id, seq: given.seq, environmentId: lease.environmentId, sessionId: acked.data.id, kind: WIRE_KIND },
    ...{ state: 'active' as const, metadata: acked.metadata, createdAt: acked.created_at },
    ...{ acknowledgedAt: acked.acknowledged_at, startedAt: acked.started_at, lastHeartbeat: lease.heartbeat },
    ...{ stopRequestedAt: null, stoppedAt: null, traceContext: given.trace_context, input: given.input },
    ...{ attempt: given.attempt, maxAttempts: given.max_attempts, isReclaimed: given.is_reclaimed, lease },
  });

const noTransactions = async (): Promise<never> => {
  throw new QueueError(
    'invalid_request',
    'a worker over HTTP has no transactions: answer what is to be kept as the result',
  );
};

const isRefusal = (error: unknown): error is ControlError => error instanceof ControlError;

/** Also what is not the server's own answer, whatever its status: a front says 404 while nothing is behind it. */
export function isTransient(error: unknown): boolean {
  if (!(error instanceof ControlError)) return false;
  const { status = 503, type } = error;
  return type === 'unknown_error' || status === 429 || status >= 500;
}

/** The server's refusals come out as they are; that it is away, or too busy, as the store's own failure. */
function orUnavailable(call: Call) {
  return async <Answer>(...asked: Parameters<Call>): Promise<Answer> => {
    try {
      return await call<Answer>(...asked);
    } catch (error) {
      if (!isTransient(error)) throw error;
      throw new QueueError('unavailable', error instanceof Error ? error.message : 'no answer', { cause: error });
    }
  };
}
