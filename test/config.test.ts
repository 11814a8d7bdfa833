import t from 'tap';
import { type Config, ConfigError, readConfig } from '../src/config.ts';

/** What is wrong with these variables, by the message; nothing when they are taken. */
function problemsOf(environment: Record<string, string>): readonly string[] {
  try {
    readConfig(environment);
    return [];
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    return error.problems;
  }
}

const DEFAULTS: Config = {
  host: '127.0.0.1',
  port: 8080,
  databaseUrl: undefined,
  listenDatabaseUrl: undefined,
  dataDir: './data',
  publicUrl: undefined,
  sessionsUpstreamUrl: undefined,
  corsOrigins: [],
  operatorKey: undefined,
  leaseTtlSeconds: 120,
  leaseTtlSecondsMax: 300,
  startupLeaseSeconds: 120,
  reclaimOlderThanMs: 5000,
  sweepIntervalMs: 1000,
  requestsPerSecondMax: 2_000,
  shutdownGraceSeconds: 10,
  retentionDays: 7,
  maxHandOuts: null,
  maxHandOvers: 10,
  maxAttempts: 25,
  logLevel: 'info',
  otlp: undefined,
};

t.test('everything is optional, and set but empty means not set', async (t) => {
  t.strictSame(readConfig({}), DEFAULTS);
  const names = 'HOST PORT DATABASE_URL LISTEN_DATABASE_URL DATA_DIR PUBLIC_URL LEASEHOLD_API_KEY LEASE_TTL_SECONDS';
  const empty = Object.fromEntries(
    [...names.split(' '), 'LOG_LEVEL', 'OTEL_EXPORTER_OTLP_ENDPOINT'].map((n) => [n, '']),
  );
  t.strictSame(readConfig(empty), DEFAULTS);
  t.ok(Object.isFrozen(readConfig({})), 'nobody changes it later');
});

const INTEGERS: [variable: string, field: keyof Config, min: number, max: number][] = [
  ['PORT', 'port', 0, 65_535],
  ['LEASE_TTL_MAX_SECONDS', 'leaseTtlSecondsMax', 120, 86_400], // below the TTL itself: see further down
  ['STARTUP_LEASE_SECONDS', 'startupLeaseSeconds', 1, 86_400],
  ['RECLAIM_OLDER_THAN_MS', 'reclaimOlderThanMs', 1, 600_000],
  ['SWEEP_INTERVAL_MS', 'sweepIntervalMs', 10, 3_600_000],
  ['RATE_LIMIT_PER_SECOND', 'requestsPerSecondMax', 0, 1_000_000],
  ['SHUTDOWN_GRACE_SECONDS', 'shutdownGraceSeconds', 0, 3600],
  ['RETENTION_DAYS', 'retentionDays', 1, 36_500],
  ['MAX_HAND_OUTS', 'maxHandOuts', 1, 1_000_000],
  ['MAX_HAND_OVERS', 'maxHandOvers', 0, 1_000_000],
  ['MAX_ATTEMPTS', 'maxAttempts', 1, 1_000_000],
];
const NO_INTEGERS = ['1e2', '0x10', ' 5 ', '5 ', '5.0', '-1', '+5', '05', 'five', '٣', '99999999999999999999'];

for (const [variable, field, min, max] of INTEGERS) {
  t.test(`${variable} is taken from ${min} to ${max} and refused beyond, by its name`, async (t) => {
    for (const value of [min, max]) t.equal(readConfig({ [variable]: `${value}` })[field], value);
    for (const bad of [`${min - 1}`, `${max + 1}`, ...NO_INTEGERS]) {
      const problems = problemsOf({ [variable]: bad });
      t.equal(problems.length, 1, bad);
      t.match(problems[0], variable);
    }
  });
}

t.test('LEASE_TTL_SECONDS may be as long as LEASE_TTL_MAX_SECONDS and not longer', async (t) => {
  const both = { LEASE_TTL_SECONDS: '60', LEASE_TTL_MAX_SECONDS: '60' };
  t.match(readConfig(both), { leaseTtlSeconds: 60, leaseTtlSecondsMax: 60 });
  for (const bad of ['0', '61', '86401', ...NO_INTEGERS]) {
    t.match(problemsOf({ ...both, LEASE_TTL_SECONDS: bad }), [/LEASE_TTL_SECONDS/], bad);
  }
  t.match(problemsOf({ LEASE_TTL_MAX_SECONDS: '60' }), [/LEASE_TTL_MAX_SECONDS/], 'the default is too long for it');
});

const TEXTS: [variable: string, field: keyof Config, good: string[], bad: string[]][] = [
  ['HOST', 'host', ['::', '0.0.0.0', 'fe80::1%eth0', 'my-host.example'], ['a host', 'http://x', 'x:y/z']],
  ['DATA_DIR', 'dataDir', ['memory://', '/var/lib/leasehold', 'a folder'], []],
  [
    'DATABASE_URL',
    'databaseUrl',
    ['postgres://u:p@h/d', 'postgresql://h'],
    ['mysql://h/d', 'h:5432', 'postgres://h:x/d'],
  ],
  ['LISTEN_DATABASE_URL', 'listenDatabaseUrl', ['postgres://u:p@h/d'], ['http://h', 'nothing']],
  ['PUBLIC_URL', 'publicUrl', ['https://work.example', 'http://h:8080/base'], ['work.example', 'ftp://h', '//h']],
  [
    'SESSIONS_UPSTREAM_URL',
    'sessionsUpstreamUrl',
    ['http://app:3000', 'https://leasehold:s3cret@app.example/base/'],
    ['app:3000', 'ws://app', '//app', 'http://app/?a=b', 'http://app/#a'],
  ],
  [
    'LEASEHOLD_API_KEY',
    'operatorKey',
    ['x'.repeat(16), 'x'.repeat(256)],
    ['x'.repeat(15), 'x'.repeat(257), 'has a space in it.', 'ключ-ключ-ключ-ключ'],
  ],
  ['LOG_LEVEL', 'logLevel', ['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'], ['INFO', 'verbose']],
];

for (const [variable, field, good, bad] of TEXTS) {
  t.test(`${variable} is taken when it is sound and refused by its name when it is not`, async (t) => {
    const beside = { DATABASE_URL: 'postgres://h/d' }; // a listen URL goes with it
    for (const value of good) t.equal(readConfig({ ...beside, [variable]: value })[field], value);
    for (const value of bad)
      t.match(problemsOf({ ...beside, [variable]: value }), [new RegExp(`^${variable} `)], value);
  });
}

t.test('CORS_ORIGINS is a list of exact origins, each bad one named', async (t) => {
  const given = ' https://app.example,http://localhost:3000 ,,';
  t.strictSame(readConfig({ CORS_ORIGINS: given }).corsOrigins, ['https://app.example', 'http://localhost:3000']);
  const bad = ['*', 'null', 'app.example', 'https://app.example/', 'https://App.example', 'https://app.example:443'];
  for (const origin of [...bad, 'https://*.app.example', 'ftp://app.example', 'https://a@app.example']) {
    t.match(problemsOf({ CORS_ORIGINS: `https://good.example,${origin}` }), [/^CORS_ORIGINS .*https:\/\/app/], origin);
  }
  t.equal(problemsOf({ CORS_ORIGINS: bad.join(',') }).length, bad.length);
});

t.test('PUBLIC_URL loses its trailing slashes: paths are appended to it', async (t) => {
  t.equal(readConfig({ PUBLIC_URL: 'https://work.example/base//' }).publicUrl, 'https://work.example/base');
});

t.test('metrics are exported only where the standard variables say so', async (t) => {
  const endpoint = { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://collector:4318' };
  const standard = { protocol: 'http/protobuf', exportIntervalMs: 60_000 };
  const cells: [Record<string, string>, Config['otlp'] | object][] = [
    [endpoint, standard],
    [{ OTEL_EXPORTER_OTLP_METRICS_ENDPOINT: 'https://collector/v1/metrics' }, standard],
    [
      { ...endpoint, OTEL_EXPORTER_OTLP_PROTOCOL: 'http/json' },
      { ...standard, protocol: 'http/json' },
    ],
    [
      { ...endpoint, OTEL_EXPORTER_OTLP_PROTOCOL: 'http/json', OTEL_EXPORTER_OTLP_METRICS_PROTOCOL: 'http/protobuf' },
      standard,
    ],
    [
      { ...endpoint, OTEL_METRIC_EXPORT_INTERVAL: '250' },
      { ...standard, exportIntervalMs: 250 },
    ],
    [{ ...endpoint, OTEL_SDK_DISABLED: 'true' }, undefined],
    [{ ...endpoint, OTEL_METRICS_EXPORTER: 'none' }, undefined],
    [{ OTEL_EXPORTER_OTLP_PROTOCOL: 'http/json', OTEL_METRIC_EXPORT_INTERVAL: '250' }, undefined],
    [{ OTEL_EXPORTER_OTLP_PROTOCOL: 'grpc', OTEL_METRIC_EXPORT_INTERVAL: 'often' }, undefined], // not ours to refuse
  ];
  for (const [environment, otlp] of cells)
    t.strictSame(readConfig(environment).otlp, otlp, JSON.stringify(environment));
});

t.test('a listen URL without a database URL is refused: it would be passed over', async (t) => {
  const problems = ['LISTEN_DATABASE_URL goes with DATABASE_URL, which is not set'];
  t.strictSame(problemsOf({ LISTEN_DATABASE_URL: 'postgres://h/d' }), problems);
});

t.test('localhost is one address, so that there is one server to close', async (t) => {
  t.equal(readConfig({ HOST: 'localhost' }).host, '127.0.0.1');
});

t.test('every bad variable is named at once, and no secret is repeated', async (t) => {
  const problems = problemsOf({
    PORT: 'http',
    DATABASE_URL: 'mysql://user:hunter2@host/db',
    LISTEN_DATABASE_URL: 'hunter2',
    PUBLIC_URL: 'nowhere/hunter2',
    SESSIONS_UPSTREAM_URL: 'http://app/?hunter2',
    LEASEHOLD_API_KEY: 'hunter2',
    OTEL_EXPORTER_OTLP_ENDPOINT: 'hunter2',
  }).join('\n');
  for (const name of [
    'PORT',
    'DATABASE_URL',
    'LISTEN_DATABASE_URL',
    'PUBLIC_URL',
    'SESSIONS_UPSTREAM_URL',
    'LEASEHOLD_API_KEY',
    'OTEL_EXPORTER_OTLP_ENDPOINT',
  ]) {
    t.match(problems, new RegExp(`^${name} `, 'm'));
  }
  t.notMatch(problems, /hunter2/);
});
