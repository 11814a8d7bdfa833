import { type Static, type TInteger, Type } from 'typebox';
import type {
  SettingsChange as SettingsChangeRecord,
  EnvironmentSettings as SettingsRecord,
} from '../control/settings.ts';
import { LIMITS } from '../queue/limits.ts';
import { Nullable, NullableInstant } from './primitives.ts';

const upTo = (maximum: number, description: string) => Type.Integer({ minimum: 1, maximum, description });

const FIELDS = {
  lease_ttl_seconds: upTo(LIMITS.leaseTtlSeconds, 'The heartbeat TTL when a worker desires none'),
  lease_ttl_max_seconds: upTo(LIMITS.leaseTtlSeconds, 'What a desired TTL is clamped to'),
  startup_lease_seconds: upTo(LIMITS.leaseTtlSeconds, 'From the ack to the first heartbeat'),
  reclaim_older_than_ms: upTo(LIMITS.reclaimOlderThanMs, 'The reservation when a poll names none'),
  max_hand_outs: upTo(LIMITS.handOuts, 'Handed out that often without finishing, an item is set aside; null: never'),
  max_attempts: upTo(LIMITS.attempts, 'Failed that often, an item is set aside'),
  retention_days: upTo(LIMITS.retentionDays, 'How long finished items are remembered'),
  fallback_after_ms: upTo(
    LIMITS.fallbackAfterMs,
    "Queued for that long since it was enqueued, with no live reservation, an item may be claimed by the platform's own executors; null: never",
  ),
};
const mapped = <Field>(map: (field: TInteger) => Field) =>
  Object.fromEntries(Object.entries(FIELDS).map(([name, field]) => [name, map(field)])) as Record<
    keyof typeof FIELDS,
    Field
  >;

const { max_hand_outs: MaxHandOuts, fallback_after_ms: FallbackAfterMs, ...always } = FIELDS;

/** What an environment has of its own, and what holds. */
export const EnvironmentSettings = Type.Object(
  {
    type: Type.Literal('environment_settings'),
    environment_id: Type.String(),
    paused_at: Nullable<string>(NullableInstant, { description: 'Since when nothing is handed out' }),
    settings: Type.Object(
      mapped((field) => Nullable<number>(field)),
      { description: "Null: the server's own holds" },
    ),
    effective: Type.Object({
      ...always,
      max_hand_outs: Nullable<number>(MaxHandOuts),
      fallback_after_ms: Nullable<number>(FallbackAfterMs),
    }),
  },
  { $id: 'EnvironmentSettings', title: 'EnvironmentSettings' },
);

export const SettingsChange = Type.Object(
  mapped((field) => Type.Optional(Nullable<number>(field))),
  { additionalProperties: false, description: "What is omitted keeps its value; null falls back to the server's" },
);

export const toSettingsChange = (body: Static<typeof SettingsChange>): SettingsChangeRecord => ({
  leaseTtlSeconds: body.lease_ttl_seconds,
  leaseTtlSecondsMax: body.lease_ttl_max_seconds,
  startupLeaseSeconds: body.startup_lease_seconds,
  reclaimOlderThanMs: body.reclaim_older_than_ms,
  maxHandOuts: body.max_hand_outs,
  maxAttempts: body.max_attempts,
  retentionDays: body.retention_days,
  fallbackAfterMs: body.fallback_after_ms,
});

export function toEnvironmentSettings(settings: SettingsRecord): Static<typeof EnvironmentSettings> {
  const { own, effective } = settings;
  const toFields = <T extends number | null>(values: Record<keyof typeof own, T>) => ({
    lease_ttl_seconds: values.leaseTtlSeconds,
    lease_ttl_max_seconds: values.leaseTtlSecondsMax,
    startup_lease_seconds: values.startupLeaseSeconds,
    reclaim_older_than_ms: values.reclaimOlderThanMs,
    max_hand_outs: values.maxHandOuts,
    max_attempts: values.maxAttempts,
    retention_days: values.retentionDays,
    fallback_after_ms: values.fallbackAfterMs,
  });
  return {
    type: 'environment_settings',
    environment_id: settings.environmentId,
    paused_at: settings.pausedAt,
    settings: toFields(own),
    effective: {
      ...toFields({ ...effective, maxHandOuts: 0, fallbackAfterMs: 0 }),
      max_hand_outs: effective.maxHandOuts,
      fallback_after_ms: effective.fallbackAfterMs,
    },
  };
}
