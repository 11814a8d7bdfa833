import { type Static, type TSchema, Type } from 'typebox';

/** An instant with microseconds, as text from SQL to the wire (contract §5). */
export const Instant = Type.String({
  format: 'date-time',
  description: 'RFC 3339, UTC, microseconds',
  examples: ['2026-01-31T12:00:00.123456Z'],
});

/** `type: [x, "null"]`: OpenAPI 3.1's way, and fast to serialise. */
export const Nullable = <T>(schema: TSchema & { type?: unknown }, options: object = {}) =>
  Type.Unsafe<T | null>({ ...schema, ...options, type: [...new Set([schema.type, 'null'].flat())] });

/** A schema of the document's components, by its name. */
export function Component<Schema extends TSchema>(schema: Schema) {
  if (!('$id' in schema)) throw new Error('a component has a name');
  return Type.Unsafe<Static<Schema>>({ $ref: `${schema.$id}#` });
}

export const NullableInstant = Nullable<string>(Instant);

/** Any key at all. (`Type.Record` makes a pattern that passes over keys with a line break, and those would not be answered.) */
export function Dictionary<T>(values: TSchema, options: object) {
  return Type.Unsafe<Record<string, T>>({ type: 'object', additionalProperties: values, ...options });
}

/** A parameter that may be given more than once. */
export const repeated = <Value>(values: ReturnType<typeof Type.Unsafe<Value>>, description: string) =>
  Type.Optional(Type.Array(values, { minItems: 1, description: `${description}; may be repeated` }));

/** Text that a caller chose and that only the check of metadata reads (contract §7). */
export const Metadata = Dictionary<string>(Type.String(), {
  description: 'At most 16 pairs; keys of 1 to 64, values of at most 512 characters',
  examples: [{ team: 'tools' }],
});

export const EnvironmentId = Type.String({
  pattern: '^env_[A-Za-z0-9_-]{1,64}$',
  examples: ['env_V1StGXR8Z5jdHi6BmyT'],
});
export const WorkId = Type.String({ pattern: '^work_[A-Za-z0-9_-]{1,64}$', examples: ['work_V1StGXR8Z5jdHi6BmyT'] });

export const EnvironmentParams = Type.Object({ environment_id: EnvironmentId });
export const WorkParams = Type.Object({ environment_id: EnvironmentId, work_id: WorkId });

/** Of every change under /control/v1. The validator passes over headers: this is for the document, the check is `change`'s. */
export const ChangeHeaders = Type.Object({
  'idempotency-key': Type.Optional(
    Type.String({
      minLength: 1,
      maxLength: 255,
      description:
        'Printable ASCII, your own. The same request with the same key is acted on once and answered the same for a day',
    }),
  ),
});
