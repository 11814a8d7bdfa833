import { type Static, Type } from 'typebox';
import type { Environment as EnvironmentRecord } from '../control/environments.ts';
import { LIMITS } from '../queue/limits.ts';
import { Component, Dictionary, Instant, Metadata, Nullable, NullableInstant } from './primitives.ts';
import { ListQuery } from './work.ts';

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

/** What the official clients may send; of a cloud environment's settings nothing is kept. */
const ConfigBody = Type.Object({
  ...Config.properties,
  networking: Type.Optional(Type.Unknown({ description: 'Not with self_hosted' })),
  packages: Type.Optional(Type.Unknown({ description: 'Not with self_hosted' })),
});

export const EnvironmentBody = Type.Object({
  name: Name,
  description: Type.Optional(Description),
  config: Type.Optional(Nullable<Static<typeof ConfigBody>>(ConfigBody, { description: 'Absent: self_hosted' })),
  metadata: Type.Optional(Metadata),
});

export const EnvironmentChangeBody = Type.Object({
  name: Type.Optional(Nullable<string>(Name, { description: 'Absent or null: kept' })),
  description: Type.Optional(Nullable<string>(Description, { description: 'Absent: kept; null: cleared' })),
  config: Type.Optional(Nullable<Static<typeof ConfigBody>>(ConfigBody, { description: 'The type cannot be changed' })),
  metadata: Type.Optional(
    Dictionary<string | null>(Type.Unsafe<string | null>({ type: ['string', 'null'] }), {
      description: 'Merged; null or "" deletes a key',
      examples: [{ team: 'tools', note: null }],
    }),
  ),
});

export const EnvironmentsQuery = Type.Object({
  ...ListQuery.properties,
  include_archived: Type.Optional(Type.Boolean({ description: 'Default false' })),
});

export const EnvironmentPage = Type.Object({
  data: Type.Array(Component(Environment)),
  next_page: Nullable<string>(Type.String({ description: 'For the parameter page; null on the last page' })),
});

export const EnvironmentDeleted = Type.Object({ id: Type.String(), type: Type.Literal('environment_deleted') });

export const Health = Type.Object({
  status: Type.Literal('ok'),
  version: Type.String({ description: "The server's", examples: ['0.1.0'] }),
});

export const Readiness = Type.Object({
  status: Type.Literal('ready'),
  schema: Type.Unsafe<'current' | 'newer'>({ type: 'string', enum: ['current', 'newer'] }),
});
