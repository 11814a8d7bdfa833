import { type Static, Type } from 'typebox';
import type { Lock as LockRecord } from '../locks/lock.ts';
import { LIMITS } from '../queue/limits.ts';
import { Component, EnvironmentId, Instant, Nullable } from './primitives.ts';

const Name = Type.String({
  description: `Your own, 1 to ${LIMITS.lockNameCharacters} characters, neither . nor ..; percent-encoded in the path`,
  examples: ['summary:42'],
});
const Owner = Type.String({
  minLength: 1,
  maxLength: LIMITS.lockOwnerCharacters,
  description: 'Who holds it or asks for it: your own, different for each that must not hold it at the same time',
  examples: ['worker-7/call-1'],
});
const Token = Type.Integer({
  minimum: 1,
  maximum: Number.MAX_SAFE_INTEGER,
  description: 'The fencing token: each holder of the lock has a higher one than the holder before',
});
const TtlSeconds = Type.Optional(
  Type.Integer({
    minimum: 1,
    maximum: LIMITS.lockSeconds,
    description: `From now to the expiry, which never moves back; default ${LIMITS.lockSecondsDefault}`,
  }),
);

export const Lock = Type.Object(
  {
    type: Type.Literal('lock'),
    environment_id: Type.String(),
    name: Name,
    owner: Owner,
    token: Token,
    acquired_at: Instant,
    expires_at: Instant,
    expires_in_ms: Type.Integer({
      description: 'From the answer to the expiry, for clocks that do not agree with ours',
    }),
  },
  { $id: 'Lock', title: 'Lock' },
);

export const toLockObject = (lock: LockRecord): Static<typeof Lock> => ({
  type: 'lock',
  environment_id: lock.environmentId,
  name: lock.name,
  owner: lock.owner,
  token: lock.token,
  acquired_at: lock.acquiredAt,
  expires_at: lock.expiresAt,
  expires_in_ms: lock.expiresInMs,
});

export const LockParams = Type.Object({ environment_id: EnvironmentId, name: Name });

export const AcquireBody = Type.Object({ owner: Owner, ttl_seconds: TtlSeconds }, { additionalProperties: false });
export const RenewBody = Type.Object({ token: Token, ttl_seconds: TtlSeconds }, { additionalProperties: false });
export const LockReleaseBody = Type.Object({ token: Token }, { additionalProperties: false });

export const LockReleased = Type.Object({
  type: Type.Literal('lock_released'),
  released: Type.Boolean({ description: 'Whether this call let it go; false: the token did not hold it (any more)' }),
});

export const LockPage = Type.Object({
  data: Type.Array(Component(Lock)),
  next_page: Nullable<string>(Type.String({ description: 'For the parameter page; null on the last page' })),
});
