import type { Static, TSchema } from 'typebox';
import type { AuditPage, AuditQuery } from '../wire/audit.ts';
import type { Diagnosis } from '../wire/diagnosis.ts';
import type { Caller } from '../wire/caller.ts';
import type { CancelBody, Cancelled, EnqueueAllBody, EnqueueBody, EnqueuedAll, WorkInput } from '../wire/enqueue.ts';
import type { StreamTicket } from '../wire/environment-events.ts';
import type { ApiKeyBody, EnvironmentKeyBody, IssuedKey, Key, KeyPage, RotateBody } from '../wire/keys.ts';
import type { AcquireBody, Lock, LockPage, LockReleaseBody, LockReleased, RenewBody } from '../wire/locks.ts';
import type {
  IntrospectBody,
  Introspection,
  WorkDetails,
  WorkDetailsPage,
  WorkDetailsQuery,
  Workers,
  WorkHistory,
} from '../wire/operations.ts';
import type { OutcomeBody, ReleaseBody, WorkOutcome, WorkRelease, WorkResult } from '../wire/outcome.ts';
import type { AppendBody, Appended } from '../wire/session-events.ts';
import type { Session, SessionBody } from '../wire/sessions.ts';
import type { EnvironmentSettings, SettingsChange } from '../wire/settings.ts';
import type { ListQuery, Work } from '../wire/work.ts';
import { type CallOptions, type ClientOptions, createCall, path } from './call.ts';
import { openEvents } from './open-events.ts';

type Body<Schema extends TSchema> = Static<Schema>;
type Query<Schema extends TSchema> = Static<Schema>;

/**
 * The routes under `/control/v1`, one method each, named by their operationIds. The server's code is not reached: only the types
 * of what goes over the wire are shared. Every method may throw ControlError.
 */
export function createControlClient(options: ClientOptions) {
  const call = createCall(options);
  const get =
    <Answer extends TSchema>() =>
    (path: string, o?: CallOptions, query?: Query<TSchema>) =>
      call<Static<Answer>>('GET', path, { ...o, query: query as Record<string, never> });
  const send =
    <Answer extends TSchema>(method: 'POST' | 'PUT' | 'PATCH' | 'DELETE' = 'POST') =>
    (path: string, o?: CallOptions, body?: unknown) =>
      call<Static<Answer>>(method, path, { ...o, body });

  return {
    issueEnvironmentKey: (environmentId: string, body: Body<typeof EnvironmentKeyBody>, o?: CallOptions) =>
      send<typeof IssuedKey>()(path`/environments/${environmentId}/keys`, o, body),
    listEnvironmentKeys: (environmentId: string, query: Query<typeof ListQuery> = {}, o?: CallOptions) =>
      get<typeof KeyPage>()(path`/environments/${environmentId}/keys`, o, query),
    rotateEnvironmentKey: (environmentId: string, keyId: string, body: Body<typeof RotateBody> = {}, o?: CallOptions) =>
      send<typeof IssuedKey>()(path`/environments/${environmentId}/keys/${keyId}/rotate`, o, body),
    revokeEnvironmentKey: (environmentId: string, keyId: string, o?: CallOptions) =>
      send<typeof Key>('DELETE')(path`/environments/${environmentId}/keys/${keyId}`, o),

    issueApiKey: (body: Body<typeof ApiKeyBody>, o?: CallOptions) => send<typeof IssuedKey>()('/keys', o, body),
    listApiKeys: (query: Query<typeof ListQuery> = {}, o?: CallOptions) => get<typeof KeyPage>()('/keys', o, query),
    rotateApiKey: (keyId: string, body: Body<typeof RotateBody> = {}, o?: CallOptions) =>
      send<typeof IssuedKey>()(path`/keys/${keyId}/rotate`, o, body),
    revokeApiKey: (keyId: string, o?: CallOptions) => send<typeof Key>('DELETE')(path`/keys/${keyId}`, o),

    enqueueWork: (environmentId: string, body: Body<typeof EnqueueBody>, o?: CallOptions) =>
      send<typeof Work>()(path`/environments/${environmentId}/work`, o, body),
    enqueueWorkBatch: (environmentId: string, body: Body<typeof EnqueueAllBody>, o?: CallOptions) =>
      send<typeof EnqueuedAll>()(path`/environments/${environmentId}/work/batch`, o, body),
    cancelSession: (environmentId: string, body: Body<typeof CancelBody>, o?: CallOptions) =>
      send<typeof Cancelled>()(path`/environments/${environmentId}/work/cancel`, o, body),
    requeueWork: (environmentId: string, workId: string, o?: CallOptions) =>
      send<typeof WorkDetails>()(path`/environments/${environmentId}/work/${workId}/requeue`, o),
    releaseWork: (environmentId: string, workId: string, body: Body<typeof ReleaseBody> = {}, o?: CallOptions) =>
      send<typeof WorkRelease>()(path`/environments/${environmentId}/work/${workId}/release`, o, body),
    reportWork: (environmentId: string, workId: string, body: Body<typeof OutcomeBody>, o?: CallOptions) =>
      send<typeof WorkOutcome>('PATCH')(path`/environments/${environmentId}/work/${workId}`, o, body),
    readWorkResult: (environmentId: string, workId: string, o?: CallOptions) =>
      get<typeof WorkResult>()(path`/environments/${environmentId}/work/${workId}/result`, o),
    readWorkInput: (environmentId: string, workId: string, o?: CallOptions) =>
      get<typeof WorkInput>()(path`/environments/${environmentId}/work/${workId}/input`, o),
    listWorkDetails: (environmentId: string, query: Query<typeof WorkDetailsQuery> = {}, o?: CallOptions) =>
      get<typeof WorkDetailsPage>()(path`/environments/${environmentId}/work`, o, query),
    workHistory: (environmentId: string, workId: string, o?: CallOptions) =>
      get<typeof WorkHistory>()(path`/environments/${environmentId}/work/${workId}/history`, o),
    listWorkers: (environmentId: string, o?: CallOptions) =>
      get<typeof Workers>()(path`/environments/${environmentId}/workers`, o),
    diagnoseEnvironment: (environmentId: string, o?: CallOptions) =>
      get<typeof Diagnosis>()(path`/environments/${environmentId}/diagnosis`, o),

    /** See `openEvents`: an async iterable, until the signal aborts. */
    openEvents: (environmentId: string, o?: Pick<CallOptions, 'signal'>) => openEvents(options, environmentId, o),
    issueEventsTicket: (environmentId: string, o?: CallOptions) =>
      send<typeof StreamTicket>()(path`/environments/${environmentId}/events/tickets`, o),
    acquireLock: (environmentId: string, name: string, body: Body<typeof AcquireBody>, o?: CallOptions) =>
      send<typeof Lock>('PUT')(path`/environments/${environmentId}/locks/${name}`, o, body),
    renewLock: (environmentId: string, name: string, body: Body<typeof RenewBody>, o?: CallOptions) =>
      send<typeof Lock>()(path`/environments/${environmentId}/locks/${name}/renew`, o, body),
    releaseLock: (environmentId: string, name: string, body: Body<typeof LockReleaseBody>, o?: CallOptions) =>
      send<typeof LockReleased>()(path`/environments/${environmentId}/locks/${name}/release`, o, body),
    listLocks: (environmentId: string, query: Query<typeof ListQuery> = {}, o?: CallOptions) =>
      get<typeof LockPage>()(path`/environments/${environmentId}/locks`, o, query),

    createSessionOnce: (body: Body<typeof SessionBody>, o?: CallOptions) =>
      send<typeof Session>()('/sessions', o, body),
    sendSessionEventsOnce: (sessionId: string, body: Body<typeof AppendBody>, o?: CallOptions) =>
      send<typeof Appended>()(path`/sessions/${sessionId}/events`, o, body),

    readSettings: (environmentId: string, o?: CallOptions) =>
      get<typeof EnvironmentSettings>()(path`/environments/${environmentId}/settings`, o),
    changeSettings: (environmentId: string, body: Body<typeof SettingsChange>, o?: CallOptions) =>
      send<typeof EnvironmentSettings>('PATCH')(path`/environments/${environmentId}/settings`, o, body),
    pauseEnvironment: (environmentId: string, o?: CallOptions) =>
      send<typeof EnvironmentSettings>()(path`/environments/${environmentId}/pause`, o),
    resumeEnvironment: (environmentId: string, o?: CallOptions) =>
      send<typeof EnvironmentSettings>()(path`/environments/${environmentId}/resume`, o),

    readCaller: (o?: CallOptions) => get<typeof Caller>()('/caller', o),
    introspectToken: (body: Body<typeof IntrospectBody>, o?: CallOptions) =>
      send<typeof Introspection>()('/tokens/introspect', o, body),
    listAudit: (query: Query<typeof AuditQuery> = {}, o?: CallOptions) => get<typeof AuditPage>()('/audit', o, query),
  };
}

export type ControlClient = ReturnType<typeof createControlClient>;
