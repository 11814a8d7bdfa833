import { type RawBuilder, sql } from 'kysely';
import type { Database } from '../db/connect.ts';
import { rfc3339 } from '../db/sql.ts';
import { environmentNotFound, QueueError } from '../queue/errors.ts';
import { checkInteger, checkText, LIMITS } from '../queue/limits.ts';
import type { QueueSettings } from '../queue/settings.ts';

/** What an environment may have of its own: each falls back to the process's, the first refusal to none. */
const SETTINGS = {
  leaseTtlSeconds: { column: 'lease_ttl_seconds', max: LIMITS.leaseTtlSeconds },
  leaseTtlSecondsMax: { column: 'lease_ttl_max_seconds', max: LIMITS.leaseTtlSeconds },
  startupLeaseSeconds: { column: 'startup_lease_seconds', max: LIMITS.leaseTtlSeconds },
  reclaimOlderThanMs: { column: 'reclaim_older_than_ms', max: LIMITS.reclaimOlderThanMs },
  maxHandOuts: { column: 'max_hand_outs', max: LIMITS.handOuts },
  maxAttempts: { column: 'max_attempts', max: LIMITS.attempts },
  retentionDays: { column: 'retention_days', max: LIMITS.retentionDays },
  fallbackAfterMs: { column: 'fallback_after_ms', max: LIMITS.fallbackAfterMs },
} as const satisfies Partial<Record<keyof QueueSettings | 'fallbackAfterMs', { column: string; max: number }>>;

type Name = keyof typeof SETTINGS;
const NAMES = Object.keys(SETTINGS) as Name[];

export type EnvironmentSettings = {
  readonly environmentId: string;
  readonly pausedAt: string | null;
  /** The environment's own; null: the process's holds. */
  readonly own: Readonly<Record<Name, number | null>>;
  /** What holds. */
  readonly effective: Effective;
};

/** `fallbackAfterMs` null: never. */
type Effective = Pick<QueueSettings, Exclude<Name, 'fallbackAfterMs'>> & { readonly fallbackAfterMs: number | null };

/** What is undefined keeps its value, null falls back to the process's. */
export type SettingsChange = { readonly [name in Name]?: number | null | undefined };

/** Refuses: environment_not_found. */
export async function readSettings(
  database: Database,
  id: string,
  defaults: QueueSettings,
): Promise<EnvironmentSettings> {
  checkText('id', id, LIMITS.idCharacters);
  const { environments } = database.names;
  return answerOf(
    id,
    await database.rows(sql<Row>`select ${columns} from ${environments} e where e.id = ${id}`),
    defaults,
  );
}

/**
 * Changes settings, all or nothing, for what is decided from now on: leases that run keep their length. `defaults` are the
 * process's. Refuses: environment_not_found; invalid_request, also when the TTL would be above its maximum.
 */
export async function changeSettings(
  database: Database,
  id: string,
  change: SettingsChange,
  defaults: QueueSettings,
): Promise<EnvironmentSettings> {
  checkText('id', id, LIMITS.idCharacters);
  for (const name of NAMES) {
    const value = change[name];
    if (value !== undefined && value !== null) checkInteger(SETTINGS[name].column, value, 1, SETTINGS[name].max);
  }
  const { environments } = database.names;
  const next = (name: Name) => {
    const column = sql.ref(`e.${SETTINGS[name].column}`);
    return change[name] === undefined ? column : sql`${change[name]}::integer`;
  };
  const rows = await database.rows(sql<Row & { ttl: number; ttlMax: number }>`
    with current as materialized (
      select e.id, coalesce(${next('leaseTtlSeconds')}, ${defaults.leaseTtlSeconds}::integer) as ttl,
        coalesce(${next('leaseTtlSecondsMax')}, ${defaults.leaseTtlSecondsMax}::integer) as ttl_max
      from ${environments} e where e.id = ${id} for no key update
    ), changed as (
      update ${environments} e
      set ${sql.join(NAMES.map((name) => sql`${sql.id(SETTINGS[name].column)} = ${next(name)}`))}
      from current c where e.id = c.id and c.ttl <= c.ttl_max
      returning e.id, e.paused_at, ${sql.join(NAMES.map((name) => sql.ref(`e.${SETTINGS[name].column}`)))}
    )
    select c.ttl, c.ttl_max as "ttlMax", ${columns} from current c left join changed e on true`);
  const [row] = rows;
  if (row !== undefined && row.environmentId === null) {
    throw new QueueError(
      'invalid_request',
      `lease_ttl_seconds (${row.ttl}) must not be above lease_ttl_max_seconds (${row.ttlMax})`,
    );
  }
  return answerOf(id, rows, defaults);
}

/**
 * From the next look on nothing is handed out: polls that wait do so until their time is up, others are answered null. Running
 * work goes on. Once more changes nothing. Refuses: environment_not_found.
 */
export const pauseEnvironment = (database: Database, id: string, defaults: QueueSettings) =>
  setPaused(database, id, sql`coalesce(e.paused_at, clock_timestamp())`, defaults);

/** The caller wakes the waiting polls after the commit. Refuses: environment_not_found. */
export const resumeEnvironment = (database: Database, id: string, defaults: QueueSettings) =>
  setPaused(database, id, sql`null`, defaults);

async function setPaused(database: Database, id: string, pausedAt: RawBuilder<unknown>, defaults: QueueSettings) {
  checkText('id', id, LIMITS.idCharacters);
  const { environments } = database.names;
  return answerOf(
    id,
    await database.rows(
      sql<Row>`update ${environments} e set paused_at = ${pausedAt} where e.id = ${id} returning ${columns}`,
    ),
    defaults,
  );
}

type Row = { environmentId: string | null; pausedAt: string | null } & Record<Name, number | null>;

const columns = sql`e.id as "environmentId", ${rfc3339(sql`e.paused_at`)} as "pausedAt", ${sql.join(
  NAMES.map((name) => sql`${sql.ref(`e.${SETTINGS[name].column}`)} as ${sql.id(name)}`),
)}`;

function answerOf(environmentId: string, [row]: readonly Row[], defaults: QueueSettings): EnvironmentSettings {
  if (row === undefined) throw environmentNotFound(environmentId);
  const { pausedAt, environmentId: _, ...found } = row;
  const pick = <T>(value: (name: Name) => T) =>
    Object.fromEntries(NAMES.map((name) => [name, value(name)])) as Record<Name, T>;
  const own = pick((name) => found[name]);
  const fallen = { ...defaults, fallbackAfterMs: null };
  const effective = pick((name) => found[name] ?? fallen[name]) as Effective;
  return { environmentId, pausedAt, own, effective };
}
