import { type Static, Type } from 'typebox';
import type { Environment as EnvironmentRecord } from '../control/environments.ts';
import { LIMITS } from '../queue/limits.ts';
import { Instant, Metadata, Nullable, NullableInstant } from './primitives.ts';

const Name = Type.String({ minLength: 1, maxLength: LIMITS.nameCharacters, examples: ['production'] });
const Description = Nullable<string>(Type.String({ maxLength: LIMITS.descriptionCharacters }));
const Config = Type.Object({
  type: Type.Unsafe<'self_hosted' | 'cloud'>({ type: 'string', enum: ['self_hosted', 'cloud'] }),
});

/** The official shape; `config` holds the type alone. */
export const Environment = Type.Object(
  {
    id: Type.String(),
    type: Type.Literal('environment'),
    name: Name,
    description: Description,
    config: Config,
    metadata: Metadata,
    scope: Type.Literal('organization'),
    created_at: Instant,
    updated_at: Instant,
    archived_at: NullableInstant,
  },
  { $id: 'Environment', title: 'Environment' },
);

export const toEnvironment = (environment: EnvironmentRecord): Static<typeof Environment> => ({
  id: environment.id,
  type: 'environment',
  name: environment.name,
  description: environment.description,
  config: { type: environment.type },
  metadata: environment.metadata,
  scope: 'organization',
  created_at: environment.createdAt,
  updated_at: environment.updatedAt,
  archived_at: environment.archivedAt,
});

export const EnvironmentBody = Type.Object({
  name: Name,
  description: Type.Optional(Description),
  config: Type.Optional(Nullable<Static<typeof Config>>(Config, { description: 'Absent: self_hosted' })),
  metadata: Type.Optional(Metadata),
});

export const KeyBody = Type.Object({ name: Name }, { additionalProperties: false });

export const IssuedKey = Type.Object({
  id: Type.String(),
  name: Type.String(),
  key: Type.String({ description: 'Shown this once' }),
  expires_at: Instant,
});

export const EnqueueBody = Type.Object(
  {
    data: Type.Object(
      {
        type: Type.Literal('session'),
        id: Type.String({ minLength: 1, maxLength: LIMITS.sessionIdCharacters, description: 'Your own text' }),
      },
      { additionalProperties: false },
    ),
    metadata: Type.Optional(Metadata),
  },
  { additionalProperties: false },
);

export const Health = Type.Object({ status: Type.Literal('ok') });

export const Readiness = Type.Object({
  status: Type.Literal('ready'),
  schema: Type.Unsafe<'current' | 'newer'>({ type: 'string', enum: ['current', 'newer'] }),
});
