import type { Generated } from 'kysely';

/** Text with microseconds on the way out (see `rfc3339`), RFC 3339 text on the way in. Never a JavaScript Date. */
type Instant = string;

export type EnvironmentType = 'self_hosted' | 'cloud';

export type EnvironmentsTable = {
  id: string;
  name: string;
  description: string | null;
  type: EnvironmentType;
  metadata: Generated<string>;
  created_at: Generated<Instant>;
  updated_at: Generated<Instant>;
  archived_at: Generated<Instant | null>;
  paused_at: Generated<Instant | null>;
};

/** Environment keys and API keys: the kind is told by `environment_id`, which only an environment key has. */
export type CredentialsTable = {
  id: string;
  environment_id: string | null;
  name: string;
  key_hash: string;
  created_at: Generated<Instant>;
  expires_at: Instant;
  revoked_at: Generated<Instant | null>;
  /** Only API keys are ever read_only. */
  role: Generated<'operator' | 'read_only'>;
  min_queued_age_ms: Generated<number | null>;
  /** The last characters of the key. */
  hint: Generated<string | null>;
  last_used_at: Generated<Instant | null>;
  /** When it was revoked or its expiry moved: what replicas that trust it look for. */
  changed_at: Generated<Instant | null>;
};

/** The tables that Kysely's builder touches. The queue's own are only ever reached by `sql` (design §3). */
export type Tables = {
  environments: EnvironmentsTable;
  credentials: CredentialsTable;
};
