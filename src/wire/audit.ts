import { type Static, Type } from 'typebox';
import type { AuditRecord } from '../control/audit.ts';
import { LIMITS } from '../queue/limits.ts';
import { Instant, Nullable } from './primitives.ts';
import { ListQuery } from './work.ts';

const Filter = Type.Optional(Type.String({ minLength: 1, maxLength: LIMITS.nameCharacters }));

export const AuditQuery = Type.Object({
  ...ListQuery.properties,
  environment_id: Filter,
  key_id: Filter,
  action: Filter,
});

export const AuditEntry = Type.Object({
  id: Type.String(),
  type: Type.Literal('audit_entry'),
  at: Instant,
  key_id: Type.String({ description: '`operator` is the key that the process was started with' }),
  key_name: Type.String({ description: 'As it was called then' }),
  action: Type.String({ description: "The call's operationId in this document", examples: ['enqueueWork'] }),
  environment_id: Nullable<string>(Type.String()),
  target: Nullable<string>(Type.String({ description: 'The id of what was changed or made, if not the environment' })),
  status: Type.Integer({ description: 'The HTTP status of the outcome, also of a refusal' }),
  request_id: Type.String({ description: "The first answer's header request-id" }),
});

export const AuditPage = Type.Object({
  data: Type.Array(AuditEntry),
  next_page: Nullable<string>(Type.String({ description: 'For the parameter page; null on the last page' })),
});

export const toAuditEntry = (entry: AuditRecord): Static<typeof AuditEntry> => ({
  id: `audit_${entry.seq}`,
  type: 'audit_entry',
  at: entry.at,
  key_id: entry.keyId,
  key_name: entry.keyName,
  action: entry.action,
  environment_id: entry.environmentId,
  target: entry.target,
  status: entry.status,
  request_id: entry.requestId,
});
