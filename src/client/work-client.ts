import type { Static } from 'typebox';
import type {
  Environment,
  EnvironmentBody,
  EnvironmentChangeBody,
  EnvironmentDeleted,
  EnvironmentPage,
  EnvironmentsQuery,
} from '../wire/control.ts';
import type { PollAnswer, PollQuery, StopBody, Work, WorkHeartbeat, WorkQueueStats } from '../wire/work.ts';
import { type CallOptions, type ClientOptions, createCall, path } from './call.ts';

/**
 * The routes of the official shape that an operator needs, and those of a worker (whose key is then the `apiKey`), named by their
 * operationIds. They know no Idempotency-Key: what is sent again because its answer was lost may act twice, or be refused the
 * second time. Every method may throw ControlError.
 */
export function createWorkClient(options: ClientOptions) {
  const call = createCall(options, '/v1');
  return {
    createEnvironment: (body: Static<typeof EnvironmentBody>, o?: CallOptions) =>
      call<Static<typeof Environment>>('POST', '/environments', { ...o, body }),
    listEnvironments: (query: Static<typeof EnvironmentsQuery> = {}, o?: CallOptions) =>
      call<Static<typeof EnvironmentPage>>('GET', '/environments', { ...o, query }),
    retrieveEnvironment: (environmentId: string, o?: CallOptions) =>
      call<Static<typeof Environment>>('GET', path`/environments/${environmentId}`, o),
    updateEnvironment: (environmentId: string, body: Static<typeof EnvironmentChangeBody>, o?: CallOptions) =>
      call<Static<typeof Environment>>('POST', path`/environments/${environmentId}`, { ...o, body }),
    archiveEnvironment: (environmentId: string, o?: CallOptions) =>
      call<Static<typeof Environment>>('POST', path`/environments/${environmentId}/archive`, o),
    deleteEnvironment: (environmentId: string, o?: CallOptions) =>
      call<Static<typeof EnvironmentDeleted>>('DELETE', path`/environments/${environmentId}`, o),

    workStats: (environmentId: string, o?: CallOptions) =>
      call<Static<typeof WorkQueueStats>>('GET', path`/environments/${environmentId}/work/stats`, o),
    pollWork: (environmentId: string, query: Static<typeof PollQuery> = {}, o?: CallOptions) =>
      call<Static<typeof PollAnswer>>('GET', path`/environments/${environmentId}/work/poll`, { ...o, query }),
    ackWork: (environmentId: string, workId: string, o?: CallOptions) =>
      call<Static<typeof Work>>('POST', path`/environments/${environmentId}/work/${workId}/ack`, o),
    heartbeatWork: (environmentId: string, workId: string, expected: string, o?: CallOptions) =>
      call<Static<typeof WorkHeartbeat>>('POST', path`/environments/${environmentId}/work/${workId}/heartbeat`, {
        ...o,
        query: { expected_last_heartbeat: expected },
      }),
    stopWork: (environmentId: string, workId: string, body: Static<typeof StopBody> = null, o?: CallOptions) =>
      call<undefined>('POST', path`/environments/${environmentId}/work/${workId}/stop`, { ...o, body: body ?? {} }),
  };
}

export type WorkClient = ReturnType<typeof createWorkClient>;
