/** The client's door, `leasehold/client`: shares nothing with the server but types, and runs wherever there is `fetch`. */

export { type CallOptions, type ClientOptions, ControlError } from './call.ts';
export { type ControlClient, createControlClient } from './control-client.ts';
export { type OpenedEvent, openEvents } from './open-events.ts';
export { LockLost } from '../flight/keep-lock.ts';
export type { FlightContext, SingleFlightOptions } from '../flight/single-flight.ts';
export type { ContentBlock, ToolOutcome, ToolUse } from './open-call.ts';
export { RemoteToolError, type RemoteToolErrorCode } from './remote-error.ts';
export { createRemoteLocks, type RemoteLocks, type RemoteLocksOptions } from './remote-locks.ts';
export type { EventsOptions, RemoteSession } from './remote-session.ts';
export type { ToolCallOptions } from './tool-use.ts';
export { RemoteTools } from './remote-tools.ts';
export type { RemoteToolsOptions } from './session-api.ts';
export type { SentEvent, SessionEvent } from './session-events.ts';
