import { sql } from 'kysely';
import t, { type Test } from 'tap';
import {
  createEnvironment,
  createRunner,
  createWireRunner,
  type EnqueueRequest,
  type Logger,
} from '../../src/index.ts';
import { lapse, OPERATOR_KEY, type Server, testServer, until } from '../support/harness.ts';
import { handlers } from './handlers.ts';

/** What is enqueued in each lane, and what has to be left of it. */
type Case = {
  readonly act: string;
  readonly request?: Partial<EnqueueRequest>;
  /** Asked to end once it runs. */
  readonly isStopped?: boolean;
  readonly left: object;
};

const SUCCEEDED = { state: 'stopped', outcome: 'succeeded', reason: 'worker', attempt: 1, error: null };
const FAILED = { state: 'stopped', outcome: 'failed', reason: 'failed', result: undefined };
const TRACE = { traceparent: '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01', tracestate: 'a=b' };

const CASES: readonly Case[] = [
  { act: 'answer nothing', left: { ...SUCCEEDED, result: undefined } },
  {
    act: 'answer a result',
    left: { ...SUCCEEDED, result: { text: 'naïve \u{1F511}', list: [1, null, { deep: true }], attempt: 1 } },
  },
  { act: 'answer null', left: { ...SUCCEEDED, result: null } },
  {
    act: 'answer what it was given',
    request: { metadata: { team: 'tools' }, maxAttempts: 7, traceContext: TRACE },
    left: {
      ...SUCCEEDED,
      result: {
        ...{
          input: { act: 'answer what it was given' },
          kind: 'tool_exec',
          attempt: 1,
          maxAttempts: 7,
          isReclaimed: false,
        },
        ...{ sessionId: 'answer what it was given', metadata: { team: 'tools' }, trace: TRACE },
      },
    },
  },
  { act: 'fail once', left: { ...SUCCEEDED, attempt: 2, error: 'RangeError: the first attempt', result: 2 } },
  { act: 'fail always', request: { maxAttempts: 2 }, left: { ...FAILED, attempt: 2, error: 'RangeError: never' } },
  {
    act: 'throw what is no error',
    request: { maxAttempts: 1 },
    left: { ...FAILED, attempt: 1, error: "{ code: 7, text: 'NUL \\x00 and \\ud800' }" },
  },
  {
    act: 'answer nonsense',
    request: { maxAttempts: 1 },
    left: {
      ...{ ...FAILED, attempt: 1 },
      error: 'TypeError: a handler must answer its settlement, a function, or { result }, or nothing',
    },
  },
  {
    act: 'answer too much',
    request: { maxAttempts: 1 },
    left: { ...FAILED, attempt: 1, error: 'QueueError: result must be at most 262144 bytes of JSON, not 300002' },
  },
  {
    act: 'answer what is no JSON',
    request: { maxAttempts: 1 },
    left: { ...FAILED, attempt: 1, error: 'QueueError: result must be a JSON value' },
  },
  {
    act: 'stop when asked',
    isStopped: true,
    left: {
      state: 'stopped',
      outcome: 'failed',
      attempt: 1,
      error: 'LeaseError: the item was asked to end',
      result: undefined,
    },
  },
  {
    act: 'go on when asked to stop',
    isStopped: true,
    left: { state: 'stopped', outcome: 'failed', attempt: 1, result: undefined },
  },
];

/** What is left of an item, without what the lanes are about: ids, instants, leases. */
async function left({ database }: Server, seq: string) {
  const { workItems, workResults } = database.names;
  const [row] = await database.rows(sql<{ state: string; result: string | null }>`
    select w.state, w.outcome, w.stop_reason as reason, w.attempt, w.last_error as error, r.result
    from ${workItems} w left join ${workResults} r on r.item_seq = w.seq where w.seq = ${seq}::bigint`);
  return { ...row, result: row?.result == null ? undefined : JSON.parse(row.result) };
}

const SILENT: Logger = { info() {}, warn() {}, error() {} };
/** Renewed each second for the stall's sake, and trusted for a minute, however busy the machine is. */
const STALL_SECONDS = 1;

/** What is reserved stays so, likewise. */
const newServer = (t: Test) =>
  testServer(t, { engine: 'postgres', background: true, settings: { reclaimOlderThanMs: 600_000 } });

type Lane = {
  readonly environmentId: string;
  /** Asks for an item to end. */
  stop(id: string): Promise<unknown>;
  run(signal: AbortSignal): Promise<void>;
};

async function lanesOf(server: Server): Promise<{ process: Lane; wire: Lane }> {
  const { database, queue, environment, call, work, url, environmentKey: key } = server;
  const options = { handlers, stallSeconds: STALL_SECONDS, concurrency: 20, logger: SILENT };
  const cloud = await createEnvironment(database, { name: `cloud of ${environment.name}`, type: 'cloud' });
  return {
    process: {
      environmentId: cloud.id,
      stop: (id) => queue.requestCancel({ environmentId: cloud.id, id }),
      run: (signal) => createRunner({ ...options, store: queue }).run(signal),
    },
    wire: {
      environmentId: environment.id,
      stop: (id) => call('POST', work(`/${id}/stop`), { as: OPERATOR_KEY }),
      run: (signal) => createWireRunner({ ...options, url, key }).run(signal),
    },
  };
}

function start(t: Test, run: Lane['run']): void {
  const stopping = new AbortController();
  const running = run(stopping.signal);
  t.teardown(() => {
    stopping.abort();
    return running;
  });
}

/** Runs all cases in one lane, all at once, and answers what is left of each. */
async function leftIn(t: Test, server: Server, { environmentId, stop, run }: Lane): Promise<unknown[]> {
  const { database, queue } = server;
  start(t, run);
  return Promise.all(
    CASES.map(async ({ act, request, isStopped }) => {
      const { item } = await queue.enqueue({ environmentId, sessionId: act, input: { act }, ...request });
      const row = async () => {
        const [found] = await database.rows(
          sql<{
            id: string;
            state: string;
          }>`select id, state from ${database.names.workItems} where seq = ${item.seq}::bigint`,
        );
        return found ?? { id: '', state: '' };
      };
      if (isStopped === true) {
        await until(`${act}: it runs`, async () => (await row()).state === 'active');
        await stop((await row()).id);
      }
      await until(`${act}: it ended`, async () => (await row()).state === 'stopped');
      return left(server, item.seq);
    }),
  );
}

t.test('one module of handlers leaves the same rows behind in both lanes', async (t) => {
  const server = await newServer(t);
  const lanes = await lanesOf(server);
  const [inProcess, overWire] = await Promise.all([leftIn(t, server, lanes.process), leftIn(t, server, lanes.wire)]);
  for (const [index, { act, left: expected, isStopped }] of CASES.entries()) {
    t.match(overWire[index], expected, `${act}: over the wire`);
    // Who asked for an item to end is told by other words, and by the item's own name.
    const but = isStopped === true ? { reason: null, error: null } : {};
    t.same({ ...(inProcess[index] as object), ...but }, { ...(overWire[index] as object), ...but }, act);
  }
});

t.test('what a dead host had begun is told to the next one in both lanes', async (t) => {
  const server = await newServer(t);
  const { database, queue } = server;
  const lanes = await lanesOf(server);
  const request = { sessionId: 'begun', input: { act: 'answer what it was given' } };
  const inProcess = (await queue.enqueue({ environmentId: lanes.process.environmentId, ...request })).item;
  t.match(await queue.claim('tool_exec', { ttlSeconds: 60, workerId: 'dead' }), { id: inProcess.id });
  const overWire = (await queue.enqueue({ environmentId: lanes.wire.environmentId, ...request })).item;
  await queue.poll({ environmentId: lanes.wire.environmentId, workerId: 'dead' });
  await queue.ackOne({ environmentId: lanes.wire.environmentId, id: overWire.id });
  for (const { id } of [inProcess, overWire]) await lapse(database, id);
  for (const { run } of [lanes.process, lanes.wire]) start(t, run);
  for (const { seq } of [inProcess, overWire]) {
    await until('it ended', async () => (await left(server, seq)).state === 'stopped');
    t.match(await left(server, seq), { ...SUCCEEDED, result: { isReclaimed: true, attempt: 1 } });
  }
});

t.test('what a handler wrote under its seq, the next attempt finds there, in both lanes', async (t) => {
  const server = await testServer(t, { engine: 'postgres', background: true });
  const lanes = await lanesOf(server);
  for (const { environmentId, run } of [lanes.process, lanes.wire]) {
    const { item } = await server.queue.enqueue({ environmentId, sessionId: 'again', input: { act: 'tell its seq' } });
    start(t, run);
    await until('it ended', async () => (await left(server, item.seq)).state === 'stopped');
    t.match(await left(server, item.seq), { ...SUCCEEDED, attempt: 2, error: `Error: ${item.seq}`, result: item.seq });
  }
});
