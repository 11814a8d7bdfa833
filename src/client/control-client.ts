import type { Static } from 'typebox';
import type { AuditPage, AuditQuery } from '../wire/audit.ts';
import type { EnqueueBody, IssuedKey, KeyBody } from '../wire/control.ts';
import type { Work } from '../wire/work.ts';
import { type CallOptions, type ClientOptions, createCall } from './call.ts';

/**
 * The routes under `/control/v1`, one method each, named by their operationIds. The server's code is not reached: only the types
 * of what goes over the wire are shared. Every method may throw ControlError.
 */
export function createControlClient(options: ClientOptions) {
  const call = createCall(options);
  return {
    issueEnvironmentKey: (environmentId: string, body: Static<typeof KeyBody>, o?: CallOptions) =>
      call<Static<typeof IssuedKey>>('POST', path`/environments/${environmentId}/keys`, { ...o, body }),

    enqueueWork: (environmentId: string, body: Static<typeof EnqueueBody>, o?: CallOptions) =>
      call<Work>('POST', path`/environments/${environmentId}/work`, { ...o, body }),

    listAudit: (query: Static<typeof AuditQuery> = {}, o?: CallOptions) =>
      call<Static<typeof AuditPage>>('GET', '/audit', { ...o, query }),
  };
}

export type ControlClient = ReturnType<typeof createControlClient>;

/** A path whose values stay what they are, whatever they hold. */
const path = (texts: TemplateStringsArray, ...values: string[]): string =>
  String.raw({ raw: texts }, ...values.map(encodeURIComponent));
