import { type RawBuilder, sql } from 'kysely';
import { rfc3339 } from '../db/sql.ts';
import { QueueError } from '../queue/errors.ts';

export const SESSION_STATUSES = ['idle', 'running', 'terminated'] as const;
export type SessionStatus = (typeof SESSION_STATUSES)[number];

/** Why a session is idle. `requires_action`: calls are open, these. `retries_exhausted`: no worker answered them, however often it was armed. */
export type StopReason =
  | { readonly type: 'end_turn' }
  | { readonly type: 'requires_action'; readonly event_ids: readonly string[] }
  | { readonly type: 'retries_exhausted' };

/** A session as the database recorded it. Instants are RFC 3339 text with microseconds. */
export type Session = {
  readonly id: string;
  readonly environmentId: string;
  readonly title: string | null;
  readonly metadata: Readonly<Record<string, string>>;
  /** As it was given, any of the official fields of an agent. */
  readonly agent: Readonly<Record<string, unknown>>;
  readonly status: SessionStatus;
  readonly createdAt: string;
  readonly updatedAt: string;
  readonly archivedAt: string | null;
};

export type SessionRow = Omit<Session, 'metadata' | 'agent'> & { readonly metadata: string; readonly agent: string };

/** A session's columns as text: the connection may be a caller's. */
export const sessionAnswer = (alias: string): RawBuilder<unknown> => {
  const column = (name: string) => sql.ref(`${alias}.${name}`);
  return sql`${column('id')} as id, ${column('environment_id')} as "environmentId", ${column('title')} as title,
    ${column('metadata')}::text as metadata, ${column('agent')} as agent, ${column('status')} as status,
    ${rfc3339(column('created_at'))} as "createdAt", ${rfc3339(column('updated_at'))} as "updatedAt",
    ${rfc3339(column('archived_at'))} as "archivedAt"`;
};

export const toSession = ({ metadata, agent, ...row }: SessionRow): Session => ({
  ...row,
  metadata: JSON.parse(metadata),
  agent: JSON.parse(agent),
});

export const sessionNotFound = (id: string): QueueError => new QueueError('not_found', `session ${id} was not found`);

const TOPIC = 'session:';
/** Whom a session's events wake: those who stream it. */
export const sessionTopic = (id: string): string => `${TOPIC}${id}`;
