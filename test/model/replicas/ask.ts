import { statusOf } from '../../../src/http/errors.ts';
import { QueueError } from '../../../src/queue/errors.ts';
import type { Heartbeat } from '../../../src/queue/heartbeat.ts';
import type { WorkItem } from '../../../src/queue/items.ts';
import type { Stopped } from '../../../src/queue/stop.ts';
import { toWork } from '../../../src/wire/work.ts';
import type { Asked, Body, Call, Outcome } from './calls.ts';
import { type Sent, send } from './client.ts';
import type { Request, Slow } from './plan.ts';
import { type Replica, SLOW_HEADER } from './replica.ts';
import type { Place, World } from './world.ts';

export type How = {
  readonly leavesAfterTurns?: number | undefined;
  readonly sessionsToken?: string | undefined;
  readonly slow?: Slow | undefined;
};

/** One call over HTTP. */
export function ask(world: World, replica: Replica, asked: Asked, how: How = {}): Promise<Call> {
  const { sessionsToken, leavesAfterTurns, slow } = how;
  const request = requestOf(asked, world.place);
  const headers = slow === undefined ? request.headers : { ...request.headers, [SLOW_HEADER]: slow };
  const onLeft = (port: number) => replica.left.add(port);
  const sent = { ...request, ...(headers && { headers }), leavesAfterTurns, onLeft };
  // What operators ask for, no token of a session allows.
  const as = sessionsToken !== undefined && sent.as === world.place.environmentKey ? sessionsToken : sent.as;
  return world.record(asked, replica.name, () => send(replica.url, replica.agent, { ...sent, as }));
}

const toItem = ({ session, requestId, followUp, maxHandOuts, maxAttempts }: Request) => ({
  data: { type: 'session', id: session },
  ...(requestId === undefined ? {} : { request_id: requestId }),
  ...(maxHandOuts === undefined ? {} : { max_hand_outs: maxHandOuts }),
  ...(maxAttempts === undefined ? {} : { max_attempts: maxAttempts }),
  follow_up: followUp,
});

function requestOf(asked: Asked, { environmentId, environmentKey, operatorKey }: Place): Sent {
  const work = `/v1/environments/${environmentId}/work`;
  const control = `/control${work}`;
  const locks = `/control/v1/environments/${environmentId}/locks`;
  const post = { method: 'POST', as: environmentKey } as const;
  switch (asked.verb) {
    case 'enqueue': {
      const items = asked.requests.map(toItem);
      const [only] = items;
      if (items.length === 1 && only !== undefined) return { ...post, path: control, as: operatorKey, body: only };
      return { ...post, path: `${control}/batch`, as: operatorKey, body: { items } };
    }
    case 'poll': {
      const headers = { 'anthropic-worker-id': asked.workerId };
      const query = asked.blockMs === undefined ? '' : `?block_ms=${asked.blockMs}`;
      return { method: 'GET', as: environmentKey, path: `${work}/poll${query}`, headers };
    }
    case 'ack':
      return { ...post, path: `${work}/${asked.id}/ack` };
    case 'beat': {
      const headers: Record<string, string> = asked.isRetry ? { 'x-stainless-retry-count': '1' } : {};
      const query = new URLSearchParams({ expected_last_heartbeat: asked.expected });
      return { ...post, path: `${work}/${asked.id}/heartbeat?${query}`, headers };
    }
    case 'stop': {
      const as = asked.reason === 'operator' ? operatorKey : environmentKey;
      return { ...post, as, path: `${work}/${asked.id}/stop`, body: { force: asked.force } };
    }
    case 'release': {
      const as = asked.tokenHash === null ? operatorKey : environmentKey;
      return { ...post, as, path: `${control}/${asked.id}/release`, body: { delay_ms: asked.delayMs } };
    }
    case 'report': {
      const { status, result, error, isFinal } = asked;
      const as = asked.tokenHash === null ? operatorKey : environmentKey;
      const body = status === 'succeeded' ? { status, result } : { status, error, final: isFinal };
      return { method: 'PATCH', as, path: `${control}/${asked.id}`, body };
    }
    case 'result':
      return { method: 'GET', as: operatorKey, path: `${control}/${asked.id}/result` };
    case 'acquire': {
      const { owner, ttlSeconds } = asked;
      return { ...post, method: 'PUT', path: `${locks}/${asked.lock}`, body: { owner, ttl_seconds: ttlSeconds } };
    }
    case 'renew': {
      const { token, ttlSeconds } = asked;
      return { ...post, path: `${locks}/${asked.lock}/renew`, body: { token, ttl_seconds: ttlSeconds } };
    }
    case 'let go':
      return { ...post, path: `${locks}/${asked.lock}/release`, body: { token: asked.token } };
    case 'patch':
      return { ...post, path: `${work}/${asked.id}`, body: { metadata: { [asked.key]: asked.value } } };
    case 'read':
      return { method: 'GET', as: environmentKey, path: `${work}/${asked.id}` };
    case 'cancel':
      return {
        ...{ ...post, as: operatorKey },
        ...{ path: `${control}/cancel`, body: { data: { type: 'session', id: asked.session } } },
      };
  }
}

type SetCall = Extract<Asked, { readonly verb: 'ack' | 'read' | 'beat' | 'stop' }>;

/** A set through the library: each member is recorded as a call of its own. */
export async function askSet(world: World, replica: Replica, set: readonly SetCall[]): Promise<Call[]> {
  const { environmentId } = world.place;
  const ref = ({ id }: SetCall) => ({ environmentId, id });
  const { queue } = replica;
  const run = async (): Promise<(WorkItem | Heartbeat | Stopped | QueueError)[]> => {
    if (set[0]?.verb === 'ack') return queue.ack(set.map(ref));
    const beats = set.flatMap((one) => (one.verb === 'beat' ? [one] : []));
    if (beats.length > 0) {
      return queue.heartbeat(
        beats.map((one) => ({ ...ref(one), expectedLastHeartbeat: one.expected, isRetry: one.isRetry })),
      );
    }
    const stops = set.flatMap((one) => (one.verb === 'stop' ? [one] : []));
    return queue.stop(stops.map((one) => ({ ...ref(one), force: one.force, reason: one.reason })));
  };
  const answers = Promise.withResolvers<(WorkItem | Heartbeat | Stopped | QueueError)[] | undefined>();
  const recorded = set.map((asked, index) =>
    world.record(asked, replica.name, async () => outcomeOf((await answers.promise)?.[index])),
  );
  run().then(answers.resolve, (error: unknown) => {
    if (error instanceof Error && 'code' in error && error.code === 'unavailable') answers.resolve(undefined);
    else answers.reject(error);
  });
  return Promise.all(recorded);
}

function outcomeOf(answer: WorkItem | Heartbeat | Stopped | QueueError | undefined): Outcome {
  if (answer === undefined) return { kind: 'unknown', why: '503' };
  if (answer instanceof QueueError) {
    const { code, message, details } = answer;
    return { kind: 'answered', status: statusOf(code), body: { error: { message, ...(details && { details }) } } };
  }
  if ('isFollowed' in answer) return { kind: 'answered', status: 204, body: null };
  const body: Body =
    'leaseExtended' in answer
      ? {
          ...{ last_heartbeat: answer.lastHeartbeat, lease_extended: answer.leaseExtended },
          ...{ state: answer.state, ttl_seconds: answer.ttlSeconds },
        }
      : toWork(answer);
  return { kind: 'answered', status: 200, body };
}
