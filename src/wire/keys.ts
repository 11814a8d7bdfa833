import { type Static, Type } from 'typebox';
import type { IssuedKey as IssuedKeyRecord, Key as KeyRecord, KeyRole } from '../control/key-rows.ts';
import { LIMITS } from '../queue/limits.ts';
import { Component, EnvironmentId, Instant, Nullable, NullableInstant } from './primitives.ts';

const Name = Type.String({ minLength: 1, maxLength: LIMITS.nameCharacters, examples: ['production'] });
const ROLES: readonly KeyRole[] = ['operator', 'read_only'];

const KEY_FIELDS = {
  id: Type.String(),
  type: Type.Literal('key'),
  name: Name,
  hint: Nullable<string>(
    Type.String({ description: 'The last 4 characters of the key; null where these were not kept' }),
  ),
  environment_id: Nullable<string>(Type.String({ description: 'Null: an API key, for the whole deployment' })),
  role: Nullable<KeyRole>(Type.Unsafe<KeyRole>({ type: 'string', enum: [...ROLES, null] }), {
    description: 'What an API key may do; null: an environment key',
  }),
  min_queued_age_ms: Type.Integer({ description: "The key's workers are offered only what has waited for this long" }),
  created_at: Instant,
  expires_at: Instant,
  last_used_at: NullableInstant,
  revoked_at: NullableInstant,
};

/** A key as it is listed: never the key itself. */
export const Key = Type.Object(KEY_FIELDS, { $id: 'Key', title: 'Key' });

export const IssuedKey = Type.Object({ ...KEY_FIELDS, key: Type.String({ description: 'Shown this once' }) });

export const KeyPage = Type.Object({
  data: Type.Array(Component(Key)),
  next_page: Nullable<string>(Type.String({ description: 'For the parameter page; null on the last page' })),
});

const ExpiresIn = Type.Integer({
  minimum: 1,
  maximum: LIMITS.keySeconds,
  description: 'How long the key is valid; default a year',
});

export const EnvironmentKeyBody = Type.Object(
  {
    name: Name,
    expires_in_seconds: Type.Optional(ExpiresIn),
    min_queued_age_ms: Type.Optional(
      Type.Integer({
        minimum: 0,
        maximum: LIMITS.minQueuedAgeMs,
        description: "The key's workers are offered only what has waited for this long; default 0",
      }),
    ),
  },
  { additionalProperties: false },
);

export const ApiKeyBody = Type.Object(
  {
    name: Name,
    expires_in_seconds: Type.Optional(ExpiresIn),
    role: Type.Optional(
      Type.Unsafe<KeyRole>({
        type: 'string',
        enum: [...ROLES],
        description: 'read_only: every GET, but no work and no change; default operator',
      }),
    ),
  },
  { additionalProperties: false },
);

const RotateFields = Type.Object(
  {
    overlap_seconds: Type.Optional(
      Type.Integer({
        minimum: 0,
        maximum: LIMITS.overlapSeconds,
        description: `How long the old key stays valid, unless it expires before; default ${LIMITS.overlapSecondsDefault}`,
      }),
    ),
    expires_in_seconds: Type.Optional(ExpiresIn),
  },
  { additionalProperties: false },
);
export const RotateBody = Nullable<Static<typeof RotateFields>>(RotateFields);

const KeyId = Type.String({ pattern: '^key_[A-Za-z0-9_-]{1,64}$', examples: ['key_V1StGXR8Z5jdHi6BmyT'] });
export const ApiKeyParams = Type.Object({ key_id: KeyId });
export const EnvironmentKeyParams = Type.Object({ environment_id: EnvironmentId, key_id: KeyId });

export const toKey = (key: KeyRecord): Static<typeof Key> => ({
  id: key.id,
  type: 'key',
  name: key.name,
  hint: key.hint,
  environment_id: key.environmentId,
  role: key.role,
  min_queued_age_ms: key.minQueuedAgeMs,
  created_at: key.createdAt,
  expires_at: key.expiresAt,
  last_used_at: key.lastUsedAt,
  revoked_at: key.revokedAt,
});

export const toIssuedKey = (issued: IssuedKeyRecord): Static<typeof IssuedKey> => ({
  ...toKey(issued),
  key: issued.key,
});
