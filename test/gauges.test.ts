import { AggregationTemporality, MeterProvider, MetricReader } from '@opentelemetry/sdk-metrics';
import { sql } from 'kysely';
import t from 'tap';
import { createEnvironment } from '../src/control/environments.ts';
import { createQueue } from '../src/create-queue.ts';
import type { Database } from '../src/db/connect.ts';
import {
  ATTRIBUTE_ENVIRONMENT_ID,
  GAUGE_DEPTH,
  GAUGE_PENDING,
  GAUGE_SET_ASIDE,
  GAUGE_WORKERS_POLLING,
  registerGauges,
} from '../src/telemetry/gauges.ts';
import { ENGINES, type Engine, lapse, testDatabase } from './support/harness.ts';

const NAMES = ['queue.depth', 'queue.pending', 'queue.set_aside', 'queue.workers_polling'];

class Reader extends MetricReader {
  constructor() {
    // As the exporter's: a cumulative reader repeats what it was told last (see telemetry/export.ts).
    super({ aggregationTemporalitySelector: () => AggregationTemporality.DELTA });
  }

  protected async onShutdown(): Promise<void> {}
  protected async onForceFlush(): Promise<void> {}

  /** One collection: by gauge, every point by its attributes. */
  async read(): Promise<Record<string, Record<string, unknown>>> {
    const { resourceMetrics } = await this.collect();
    const metrics = resourceMetrics.scopeMetrics.flatMap((scope) => scope.metrics);
    return Object.fromEntries(
      metrics
        .filter(({ dataPoints }) => dataPoints.length > 0)
        .map(({ descriptor, dataPoints }) => [
          descriptor.name,
          Object.fromEntries(dataPoints.map(({ attributes, value }) => [JSON.stringify(attributes), value])),
        ]),
    );
  }
}

/** A queue whose statements are counted and can be made to fail, with its gauges on a real meter. */
async function setUp(t: Parameters<typeof testDatabase>[0], engine: Engine = 'postgres') {
  const database = await testDatabase(t, engine);
  const faults: unknown[] = [];
  const probe = { statements: 0, failNext: false };
  const rows: Database['rows'] = (...statement) => {
    probe.statements++;
    if (!probe.failNext) return database.rows(...statement);
    probe.failNext = false;
    return Promise.reject(new Error('the database is away'));
  };
  const queue = createQueue({ database: { ...database, aside: { ...database.aside, rows } } });
  t.teardown(() => queue.close());
  const reader = new Reader();
  const provider = new MeterProvider({ readers: [reader] });
  t.teardown(() => provider.shutdown());
  const meter = provider.getMeter('test');
  const unregister = registerGauges(meter, queue.allStats, (error) => void faults.push(error));
  const environment = async (name: string, type: 'self_hosted' | 'cloud' = 'self_hosted') =>
    (await createEnvironment(database, { name, type })).id;
  return { database, queue, reader, meter, unregister, probe, faults, environment };
}

type SetUp = Awaited<ReturnType<typeof setUp>>;

const point = (environmentId: string) => JSON.stringify({ 'environment.id': environmentId });

/** What the gauges have to say, told by stats; what is set aside stats does not tell. */
async function saidByStats(
  queue: SetUp['queue'],
  environments: string[],
  setAside: Record<string, number> = {},
): Promise<unknown> {
  const all = await Promise.all(environments.map((id) => queue.stats(id)));
  const by = (field: 'depth' | 'pending' | 'workersPolling') =>
    Object.fromEntries(all.map((stats) => [point(stats.environmentId), stats[field]]));
  return {
    'queue.depth': by('depth'),
    'queue.pending': by('pending'),
    'queue.set_aside': Object.fromEntries(environments.map((id) => [point(id), setAside[id] ?? 0])),
    'queue.workers_polling': by('workersPolling'),
  };
}

t.test('the names are constants', async (t) => {
  t.strictSame([GAUGE_DEPTH, GAUGE_PENDING, GAUGE_SET_ASIDE, GAUGE_WORKERS_POLLING], NAMES);
  t.equal(ATTRIBUTE_ENVIRONMENT_ID, 'environment.id');
});

for (const engine of ENGINES) {
  t.test(`${engine}: the gauges mean exactly what stats says, of every environment`, async (t) => {
    const { database, queue, reader, environment } = await setUp(t, engine);
    const [busy, idle, empty] = [await environment('busy'), await environment('idle'), await environment('empty')];
    const cloud = await environment('cloud', 'cloud');
    for (let n = 0; n < 6; n++) await queue.enqueue({ environmentId: busy, sessionId: `session-${n}` });
    await queue.enqueue({ environmentId: cloud, sessionId: 'session-1' });
    const take = (workerId: string, environmentId = busy) =>
      queue.poll({ environmentId, workerId, reclaimOlderThanMs: 600_000 });
    const [held, lapsed, acked] = [await take('worker-1'), await take('worker-1'), await take('worker-2')];
    if (held === null || lapsed === null || acked === null) return t.fail('nothing was handed out');
    await lapse(database, lapsed.item.id); // free again
    await queue.ack([{ environmentId: busy, id: acked.item.id }]); // in neither
    await take('worker-3', idle);

    const said = await saidByStats(queue, [busy, idle, empty]);
    t.strictSame(said, {
      'queue.depth': { [point(busy)]: 4, [point(idle)]: 0, [point(empty)]: 0 },
      'queue.pending': { [point(busy)]: 1, [point(idle)]: 0, [point(empty)]: 0 },
      'queue.set_aside': { [point(busy)]: 0, [point(idle)]: 0, [point(empty)]: 0 },
      'queue.workers_polling': { [point(busy)]: 2, [point(idle)]: 1, [point(empty)]: 0 },
    });
    t.strictSame(await reader.read(), said);

    await take('worker-4');
    t.strictSame(await reader.read(), await saidByStats(queue, [busy, idle, empty]), 'also a poll of this moment');
  });

  t.test(`${engine}: what is set aside is counted while it is remembered, and in no stats`, async (t) => {
    const { database, queue, reader, environment } = await setUp(t, engine);
    const [ours, other] = [await environment('ours'), await environment('other')];
    const stopped = async (reason: string, environmentId = ours, kind: 'tool_exec' | 'model_turn' = 'tool_exec') => {
      const { item } = await queue.enqueue({ environmentId, sessionId: `${reason} ${kind}`, kind });
      await database.rows(sql`update ${database.names.workItems}
        set state = 'stopped', stopped_at = clock_timestamp(), stop_reason = ${reason} where id = ${item.id}`);
      return item.id;
    };
    for (const reason of ['worker', 'operator', 'abandoned', 'cancelled', 'failed']) await stopped(reason);
    const exhausted = await stopped('exhausted');
    await stopped('failed', ours, 'model_turn');
    await stopped('failed', other);
    const { item: spent } = await queue.enqueue({ environmentId: ours, sessionId: 'spent', maxHandOuts: 1 });
    await queue.poll({ environmentId: ours });
    await lapse(database, spent.id);
    t.strictSame(await reader.read(), await saidByStats(queue, [ours, other], { [ours]: 3, [other]: 1 }));
    t.equal(await queue.poll({ environmentId: ours }), null);
    t.strictSame(await reader.read(), await saidByStats(queue, [ours, other], { [ours]: 4, [other]: 1 }));
    await database.rows(sql`update ${database.names.workItems}
      set stopped_at = clock_timestamp() - interval '8 days' where id = ${exhausted}`);
    await queue.sweep();
    t.strictSame(await reader.read(), await saidByStats(queue, [ours, other], { [ours]: 3, [other]: 1 }));
    t.strictSame(Object.keys(await queue.stats(ours)), [
      ...['environmentId', 'depth', 'pending', 'oldestQueuedAt', 'workersPolling'],
    ]);
  });
}

t.test('a collection is one query, however many environments there are', async (t) => {
  const { reader, probe, environment } = await setUp(t);
  for (let n = 0; n < 5; n++) await environment(`environment ${n}`);
  t.equal(Object.keys((await reader.read())[GAUGE_DEPTH] ?? {}).length, 5);
  t.equal(probe.statements, 1);
  await reader.read();
  t.equal(probe.statements, 2);
});

t.test('a query that fails drops its own collection and nothing else', async (t) => {
  const { reader, meter, probe, faults, environment } = await setUp(t);
  await environment('production');
  meter.createObservableGauge('neighbour').addCallback((result) => result.observe(1));
  const whole = await reader.read();
  t.strictSame(Object.keys(whole).sort(), ['neighbour', ...NAMES]);
  probe.failNext = true;
  t.strictSame(Object.keys(await reader.read()), ['neighbour'], 'no stale values, and no zeros');
  t.match(faults, [{ message: 'the database is away' }]);
  t.strictSame(await reader.read(), whole);
  t.equal(faults.length, 1);
});

t.test('gauges that were unregistered observe nothing and ask nothing', async (t) => {
  const { reader, probe, unregister, environment } = await setUp(t);
  await environment('production');
  t.strictSame(Object.keys(await reader.read()).sort(), NAMES);
  unregister();
  t.strictSame(await reader.read(), {});
  t.equal(probe.statements, 1);
});
