import { LIMITS } from './queue/limits.ts';
import { DEFAULT_SETTINGS } from './queue/settings.ts';

/** What the process runs with (contract §7). Durations carry their unit in the name. */
export type Config = {
  readonly host: string;
  readonly port: number;
  readonly databaseUrl: string | undefined;
  readonly listenDatabaseUrl: string | undefined;
  readonly dataDir: string;
  readonly publicUrl: string | undefined;
  readonly sessionsUpstreamUrl: string | undefined;
  /** Whose pages may read event streams. */
  readonly corsOrigins: readonly string[];
  readonly operatorKey: string | undefined;
  readonly leaseTtlSeconds: number;
  readonly leaseTtlSecondsMax: number;
  readonly startupLeaseSeconds: number;
  readonly reclaimOlderThanMs: number;
  readonly sweepIntervalMs: number;
  readonly shutdownGraceSeconds: number;
  readonly retentionDays: number;
  readonly maxHandOuts: number | null;
  readonly maxHandOvers: number;
  readonly maxAttempts: number;
  readonly requestsPerSecondMax: number;
  readonly logLevel: LogLevel;
  /** Undefined unless the standard variables name an endpoint: then metrics are exported there. */
  readonly otlp: { readonly protocol: OtlpProtocol; readonly exportIntervalMs: number } | undefined;
};

const LOG_LEVELS = ['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'] as const;
type LogLevel = (typeof LOG_LEVELS)[number];

const OTLP_PROTOCOLS = ['http/protobuf', 'http/json'] as const;
export type OtlpProtocol = (typeof OTLP_PROTOCOLS)[number];

/** Every bad variable, each in a line. */
export class ConfigError extends Error {
  override readonly name = 'ConfigError';
  readonly problems: readonly string[];
  constructor(problems: readonly string[]) {
    super(problems.join('\n'));
    this.problems = problems;
  }
}

type Environment = Readonly<Record<string, string | undefined>>;

/** Reads and checks everything; throws one ConfigError that names all that is wrong. Set but empty means not set. */
export function readConfig(environment: Environment): Config {
  const problems: string[] = [];
  const text = (name: string): string | undefined => environment[name] || undefined;

  const integer = <Fallback extends number | null>(name: string, fallback: Fallback, min: number, max: number) => {
    const given = text(name);
    if (given === undefined) return fallback;
    const value = /^(0|[1-9]\d{0,15})$/.test(given) ? Number(given) : Number.NaN;
    if (value >= min && value <= max) return value;
    problems.push(`${name} must be an integer from ${min} to ${max}, got ${JSON.stringify(given)}`);
    return fallback;
  };

  const oneOf = <const T extends string>(name: string, allowed: readonly T[], fallback: T): T => {
    const given = text(name);
    if (given === undefined) return fallback;
    const known = allowed.find((value) => value === given);
    if (known === undefined)
      problems.push(`${name} must be one of ${allowed.join(', ')}, got ${JSON.stringify(given)}`);
    return known ?? fallback;
  };

  const url = (name: string, protocols: readonly string[]): string | undefined => {
    const given = text(name);
    if (given === undefined) return undefined;
    // Not shown: it may hold a password.
    if (!URL.canParse(given) || !protocols.includes(new URL(given).protocol)) {
      problems.push(`${name} must be a URL that starts with ${protocols.map((p) => `${p}//`).join(' or ')}`);
    }
    return given;
  };

  const origins = (name: string): readonly string[] => {
    const given = (text(name) ?? '').split(',').map((origin) => origin.trim());
    const listed = given.filter((origin) => origin !== '');
    for (const origin of listed) {
      if (/^https?:[^*]+$/.test(origin) && URL.canParse(origin) && new URL(origin).origin === origin) continue;
      problems.push(
        `${name} must be origins as browsers send them, with commas in between, as https://app.example; got ${JSON.stringify(origin)}`,
      );
    }
    return listed;
  };

  const host = (name: string, fallback: string): string => {
    const given = text(name) ?? fallback;
    if (!/^[\w.:%-]{1,255}$/.test(given)) problems.push(`${name} must be an address or a host name`);
    return given === 'localhost' ? '127.0.0.1' : given; // else Fastify opens a second server for the other family
  };

  const secret = (name: string): string | undefined => {
    const given = text(name);
    if (given !== undefined && !/^[\x21-\x7e]{16,256}$/.test(given)) {
      problems.push(`${name} must have 16 to 256 printable ASCII characters without spaces`);
    }
    return given;
  };

  const leaseTtlSecondsMax = integer(
    'LEASE_TTL_MAX_SECONDS',
    DEFAULT_SETTINGS.leaseTtlSecondsMax,
    1,
    LIMITS.leaseTtlSeconds,
  );
  const leaseTtlSeconds = integer('LEASE_TTL_SECONDS', DEFAULT_SETTINGS.leaseTtlSeconds, 1, LIMITS.leaseTtlSeconds);
  if (leaseTtlSeconds > leaseTtlSecondsMax) {
    problems.push(
      `LEASE_TTL_SECONDS (${leaseTtlSeconds}) must not be above LEASE_TTL_MAX_SECONDS (${leaseTtlSecondsMax})`,
    );
  }
  const isExporting =
    (text('OTEL_EXPORTER_OTLP_ENDPOINT') ?? text('OTEL_EXPORTER_OTLP_METRICS_ENDPOINT')) !== undefined &&
    text('OTEL_SDK_DISABLED')?.toLowerCase() !== 'true' &&
    text('OTEL_METRICS_EXPORTER') !== 'none';
  if (isExporting) {
    url('OTEL_EXPORTER_OTLP_ENDPOINT', ['http:', 'https:']);
    url('OTEL_EXPORTER_OTLP_METRICS_ENDPOINT', ['http:', 'https:']);
  }
  const protocolName = text('OTEL_EXPORTER_OTLP_METRICS_PROTOCOL')
    ? 'OTEL_EXPORTER_OTLP_METRICS_PROTOCOL'
    : 'OTEL_EXPORTER_OTLP_PROTOCOL';
  // Where nothing is exported they are none of our business: they are often set for all of a machine.
  const otlp = isExporting
    ? {
        protocol: oneOf(protocolName, OTLP_PROTOCOLS, 'http/protobuf'),
        exportIntervalMs: integer('OTEL_METRIC_EXPORT_INTERVAL', 60_000, 100, 86_400_000),
      }
    : undefined;
  if (text('LISTEN_DATABASE_URL') !== undefined && text('DATABASE_URL') === undefined) {
    problems.push('LISTEN_DATABASE_URL goes with DATABASE_URL, which is not set');
  }

  const sessionsUpstreamUrl = url('SESSIONS_UPSTREAM_URL', ['http:', 'https:']);
  if (/[?#]/.test(sessionsUpstreamUrl ?? '')) {
    problems.push('SESSIONS_UPSTREAM_URL must have no query and no fragment: paths are appended to it');
  }

  const config: Config = {
    host: host('HOST', '127.0.0.1'),
    port: integer('PORT', 8080, 0, 65_535),
    databaseUrl: url('DATABASE_URL', ['postgres:', 'postgresql:']),
    listenDatabaseUrl: url('LISTEN_DATABASE_URL', ['postgres:', 'postgresql:']),
    dataDir: text('DATA_DIR') ?? './data',
    publicUrl: url('PUBLIC_URL', ['http:', 'https:'])?.replace(/\/+$/, ''),
    sessionsUpstreamUrl,
    corsOrigins: origins('CORS_ORIGINS'),
    operatorKey: secret('LEASEHOLD_API_KEY'),
    leaseTtlSeconds,
    leaseTtlSecondsMax,
    startupLeaseSeconds: integer(
      'STARTUP_LEASE_SECONDS',
      DEFAULT_SETTINGS.startupLeaseSeconds,
      1,
      LIMITS.leaseTtlSeconds,
    ),
    reclaimOlderThanMs: integer(
      'RECLAIM_OLDER_THAN_MS',
      DEFAULT_SETTINGS.reclaimOlderThanMs,
      1,
      LIMITS.reclaimOlderThanMs,
    ),
    sweepIntervalMs: integer('SWEEP_INTERVAL_MS', DEFAULT_SETTINGS.sweepIntervalMs, 10, 3_600_000),
    shutdownGraceSeconds: integer('SHUTDOWN_GRACE_SECONDS', 10, 0, 3_600),
    retentionDays: integer('RETENTION_DAYS', DEFAULT_SETTINGS.retentionDays, 1, LIMITS.retentionDays),
    maxHandOuts: integer('MAX_HAND_OUTS', DEFAULT_SETTINGS.maxHandOuts, 1, LIMITS.handOuts),
    maxHandOvers: integer('MAX_HAND_OVERS', DEFAULT_SETTINGS.maxHandOvers, 0, LIMITS.handOuts),
    maxAttempts: integer('MAX_ATTEMPTS', DEFAULT_SETTINGS.maxAttempts, 1, LIMITS.attempts),
    requestsPerSecondMax: integer('RATE_LIMIT_PER_SECOND', 2_000, 0, 1_000_000),
    logLevel: oneOf('LOG_LEVEL', LOG_LEVELS, 'info'),
    otlp,
  };
  if (problems.length > 0) throw new ConfigError(problems);
  return Object.freeze(config);
}
