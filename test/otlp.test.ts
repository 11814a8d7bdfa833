import t from 'tap';
import { createOtlpMeterProvider } from '../src/telemetry/export.ts';
import { registerGauges } from '../src/telemetry/gauges.ts';
import { until } from './support/harness.ts';
import { otlpReceiver, pointsOf } from './support/otlp.ts';
import { freshDatabase, type Listening, request, startMain } from './support/process.ts';

const OPERATOR_KEY = 'operator-key-of-this-process';
const INTERVAL = { OTEL_METRIC_EXPORT_INTERVAL: '2000' };
const NAMES = ['queue.depth', 'queue.pending', 'queue.set_aside', 'queue.workers_polling'];

type Tap = Parameters<typeof freshDatabase>[0];

/** A server with three items in one environment, one of them handed out, and another environment that is empty. */
async function startBusy(
  t: Tap,
  variables: Record<string, string>,
): Promise<Listening & { busy: string; empty: string; databaseUrl: string }> {
  const databaseUrl = await freshDatabase(t);
  const server = await startMain(t, { DATABASE_URL: databaseUrl, LEASEHOLD_API_KEY: OPERATOR_KEY, ...variables });
  const call = (path: string, body?: unknown) => request(server.url + path, OPERATOR_KEY, body);
  const create = async (name: string): Promise<string> => (await call('/v1/environments', { name })).json.id;
  const [busy, empty] = [await create('busy'), await create('empty')];
  for (const id of ['session-1', 'session-2', 'session-3']) {
    await call(`/control/v1/environments/${busy}/work`, { data: { type: 'session', id } });
  }
  const headers = { 'x-api-key': OPERATOR_KEY, 'anthropic-worker-id': 'worker-1' };
  await fetch(`${server.url}/v1/environments/${busy}/work/poll?reclaim_older_than_ms=600000`, { headers });
  return { ...server, busy, empty, databaseUrl };
}

async function endCleanly(t: Tap, { child, ended, log }: Listening): Promise<void> {
  child.kill('SIGTERM');
  t.strictSame(await ended(), { code: 0, signal: null });
  t.strictSame(
    log().filter(({ level }) => Number(level) > 30),
    [],
    'the last collection found the database open',
  );
}

t.test('the gauges arrive over OTLP as JSON, once for each environment', async (t) => {
  const receiver = await otlpReceiver(t);
  const endpoint = { OTEL_EXPORTER_OTLP_ENDPOINT: receiver.url, OTEL_EXPORTER_OTLP_PROTOCOL: 'http/json' };
  const server = await startBusy(t, { ...endpoint, ...INTERVAL });
  const { busy, empty } = server;
  const points = (inBusy: number) => [`environment.id=${busy}: ${inBusy}`, `environment.id=${empty}: 0`].sort();
  const expected = {
    'queue.depth': points(2),
    'queue.pending': points(1),
    'queue.workers_polling': points(1),
    'queue.set_aside': points(0),
  };
  const last = () => receiver.received.at(-1);
  const arrived = () => JSON.stringify(pointsOf(last()?.body ?? Buffer.from('{"resourceMetrics":[]}')));
  await until('the values to arrive', () => arrived() === JSON.stringify(expected));
  t.match(last(), { path: '/v1/metrics', contentType: 'application/json' });
  await endCleanly(t, server);
  t.strictSame(pointsOf(last()?.body ?? Buffer.of()), expected, 'also the last collection, at the end');
});

t.test('without a protocol they arrive as protobuf', async (t) => {
  const receiver = await otlpReceiver(t);
  const server = await startBusy(t, { OTEL_EXPORTER_OTLP_METRICS_ENDPOINT: `${receiver.url}/metrics`, ...INTERVAL });
  const names = () => NAMES.filter((name) => receiver.received.at(-1)?.body.includes(name));
  await until('the names to arrive', () => names().length === NAMES.length);
  t.match(receiver.received.at(-1), { path: '/metrics', contentType: 'application/x-protobuf' });
  t.ok(receiver.received.at(-1)?.body.includes(server.busy), 'with the environment');
  await endCleanly(t, server);
});

t.test('a query that fails is a gap in what is exported, not the values of the collection before', async (t) => {
  const receiver = await otlpReceiver(t);
  process.env.OTEL_EXPORTER_OTLP_ENDPOINT = receiver.url;
  t.teardown(() => void delete process.env.OTEL_EXPORTER_OTLP_ENDPOINT);
  const provider = await createOtlpMeterProvider({ protocol: 'http/json', exportIntervalMs: 3_600_000 }, (_, what) =>
    t.fail(what),
  );
  t.teardown(() => provider.shutdown());
  const stats = { environmentId: 'env_1', depth: 2, pending: 1, oldestQueuedAt: null, workersPolling: 3, setAside: 0 };
  const answers = [[stats], undefined, [stats]];
  const meter = provider.getMeter('test');
  registerGauges(meter, async () => answers.shift() ?? Promise.reject(new Error('the database is away')));
  meter.createObservableGauge('neighbour').addCallback((result) => result.observe(1));
  for (let collection = 0; collection < 3; collection++) await provider.forceFlush();
  const exported = receiver.received.map(({ body }) => Object.keys(pointsOf(body)).sort());
  t.strictSame(exported, [['neighbour', ...NAMES], ['neighbour'], ['neighbour', ...NAMES]]);
});

t.test('each of 2,500 environments is exported, and an export that fails is told', async (t) => {
  const receiver = await otlpReceiver(t);
  process.env.OTEL_EXPORTER_OTLP_ENDPOINT = receiver.url;
  t.teardown(() => void delete process.env.OTEL_EXPORTER_OTLP_ENDPOINT);
  const faults: string[] = [];
  const provider = await createOtlpMeterProvider({ protocol: 'http/json', exportIntervalMs: 3_600_000 }, (_, what) =>
    faults.push(what),
  );
  t.teardown(() => provider.shutdown());
  const stats = Array.from({ length: 2_500 }, (_, n) => ({
    ...{ environmentId: `env_${n}`, depth: n, pending: 0, oldestQueuedAt: null, workersPolling: 0, setAside: 0 },
  }));
  registerGauges(provider.getMeter('test'), async () => stats);
  await provider.forceFlush();
  const body = String(receiver.received.at(-1)?.body);
  t.equal(new Set(body.match(/env_\d+/g)).size, stats.length);
  t.strictSame(faults, []);
  receiver.status = 400;
  await provider.forceFlush().catch(() => {});
  await until('the failed export to be told', () => faults.length > 0);
});

/** Preloaded into the server: says of every connection that it opens where it leads. */
const TELLS_CONNECTIONS = `--import data:text/javascript,${encodeURIComponent(`
  import { Socket } from 'node:net';
  const connect = Socket.prototype.connect;
  Socket.prototype.connect = function (...args) {
    const [first, second] = args.flat();
    const { host, port } = typeof first === 'object' ? first : { port: first, host: second };
    process.stderr.write('connects to ' + host + ':' + port + '\\n');
    return connect.apply(this, args);
  };`)}`;

t.test('nothing is sent where the standard variables name no endpoint, or switch it off', async (t) => {
  const receiver = await otlpReceiver(t);
  const { host } = new URL(receiver.url);
  const endpoint = { OTEL_EXPORTER_OTLP_ENDPOINT: receiver.url };
  const cells: [what: string, variables: Record<string, string>, isSent: boolean][] = [
    ['an endpoint', endpoint, true],
    ['no endpoint', { OTEL_EXPORTER_OTLP_PROTOCOL: 'http/json' }, false],
    ['OTEL_SDK_DISABLED', { ...endpoint, OTEL_SDK_DISABLED: 'true' }, false],
    ['OTEL_METRICS_EXPORTER=none', { ...endpoint, OTEL_METRICS_EXPORTER: 'none' }, false],
  ];
  for (const [what, variables, isSent] of cells) {
    const server = await startBusy(t, { NODE_OPTIONS: TELLS_CONNECTIONS, ...variables });
    server.child.kill('SIGTERM'); // the end flushes what there is to send
    await server.ended();
    const targets = new Set([...server.output().matchAll(/^connects to (.*)$/gm)].map(([, target]) => target));
    const { hostname, port } = new URL(server.databaseUrl);
    t.strictSame([...targets].sort(), [`${hostname}:${port}`, ...(isSent ? [host] : [])].sort(), what);
  }
});

t.test('a collector that never answers does not hold the end up', async (t) => {
  const receiver = await otlpReceiver(t, { answers: false });
  const server = await startBusy(t, { OTEL_EXPORTER_OTLP_ENDPOINT: receiver.url, SHUTDOWN_GRACE_SECONDS: '2' });
  const since = performance.now();
  server.child.kill('SIGTERM');
  t.strictSame(await server.ended(), { code: 0, signal: null });
  t.ok(performance.now() - since < 8_000, 'the exporter alone would take 10 s');
  t.not(receiver.received.length, 0, 'it was asked');
});
