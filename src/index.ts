/** The library's door: the queue without HTTP (design §2), and a client of the routes of our own. */

export { type CallOptions, type ClientOptions, ControlError } from './client/call.ts';
export { type ControlClient, createControlClient } from './client/control-client.ts';
export { type OpenedEvent, openEvents } from './client/open-events.ts';
export { type AuditEntry, type AuditPage, type AuditQuery, type AuditRecord, listAudit } from './control/audit.ts';
export {
  archiveEnvironment,
  deleteEnvironment,
  type EnvironmentChange,
  updateEnvironment,
} from './control/change-environment.ts';
export {
  createEnvironment,
  type Environment,
  type EnvironmentPage,
  listEnvironments,
  type NewEnvironment,
  retrieveEnvironment,
} from './control/environments.ts';
export { type Introspection, introspect } from './control/introspect.ts';
export type { IssuedKey, Key, KeyRef, KeyRole } from './control/key-rows.ts';
export { issueKey, type KeyPage, listKeys, type NewKey, revokeKey, rotateKey } from './control/keys.ts';
export {
  changeSettings,
  type EnvironmentSettings,
  pauseEnvironment,
  readSettings,
  resumeEnvironment,
  type SettingsChange,
} from './control/settings.ts';
export {
  createQueue,
  type PollRequest,
  type Queue,
  type QueueOptions,
} from './create-queue.ts';
export {
  type CallerTransaction,
  type Database,
  type DatabaseOptions,
  IN_MEMORY,
  openDatabase,
  type QueueTransaction,
} from './db/connect.ts';
export { DatabaseUnavailable } from './db/failures.ts';
export { migrate, schemaStatus } from './db/migrate.ts';
export { LockLost } from './flight/keep-lock.ts';
export type { FlightContext, SingleFlightOptions } from './flight/single-flight.ts';
export type { LockRequest } from './locks/acquire.ts';
export { createLocks, type Locks, type LocksOptions } from './locks/create-locks.ts';
export type { LockPage } from './locks/list.ts';
export type { Lock, LockProof } from './locks/lock.ts';
export type { Candidate, ExpiredLease } from './process/candidates.ts';
export type { Claimed } from './process/claim.ts';
export type { Extended } from './process/extend.ts';
export type { Handler, HandlerContext, Logger, OnReclaimed, Result, Settlement, Verdict } from './process/handler.ts';
export { type Keeper, type KeepLeaseOptions, keepLease, type Timing } from './process/keep-lease.ts';
export { type Lease, LeaseError, type LeaseErrorCode } from './process/lease.ts';
export { createRunner, type Runner, type RunnerOptions } from './process/runner.ts';
export type { ClaimOptions, Renewal, RunnerStore, Settled, WorkStore } from './process/store.ts';
export { type Assignment, readAssignment } from './queue/assignment.ts';
export { cancelSession } from './queue/cancel-session.ts';
export { OUTCOMES, type Outcome, STOP_REASONS, type StopReason, type WorkDetails } from './queue/details.ts';
export type { Diagnosis, Evidence, Finding } from './queue/diagnosis.ts';
export type { Enqueued, EnqueueRequest } from './queue/enqueue.ts';
export { only, QueueError, type QueueErrorCode } from './queue/errors.ts';
export type { FindingCode } from './queue/evidence.ts';
export { type Heartbeat, type HeartbeatRequest, NO_HEARTBEAT } from './queue/heartbeat.ts';
export { type HandOutEnd, type HandOutRecord, type History, history } from './queue/history.ts';
export { readInput, readResult } from './queue/input.ts';
export {
  type TraceContext,
  WORK_KINDS,
  WORK_STATES,
  type WorkItem,
  type WorkKind,
  type WorkRef,
  type WorkState,
} from './queue/items.ts';
export { LIMITS } from './queue/limits.ts';
export { listDetails, type WorkDetailsPage, type WorkFilter } from './queue/list-details.ts';
export type { Report, Reported } from './queue/outcome.ts';
export type { HandOut } from './queue/poll.ts';
export type { WorkPage } from './queue/read.ts';
export type { Refusal } from './queue/refusals.ts';
export type { Released } from './queue/release.ts';
export { requestIdOf } from './queue/request-id.ts';
export { requeueSetAside } from './queue/requeue.ts';
export { DEFAULT_SETTINGS, type QueueSettings } from './queue/settings.ts';
export type { QueueGauges, QueueStats } from './queue/stats.ts';
export type { Stopped, StopRequest } from './queue/stop.ts';
export type { Worker } from './queue/workers.ts';
export {
  ATTRIBUTE_ENVIRONMENT_ID,
  GAUGE_DEPTH,
  GAUGE_PENDING,
  GAUGE_SET_ASIDE,
  GAUGE_WORKERS_POLLING,
  registerGauges,
} from './telemetry/gauges.ts';
export { activeTraceContext } from './telemetry/trace-context.ts';
export { createWireRunner, type WireRunner, type WireRunnerOptions } from './worker/wire-runner.ts';
