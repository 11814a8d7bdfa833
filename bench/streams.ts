import { once } from 'node:events';
import { type ClientRequest, type IncomingMessage, request } from 'node:http';
import { call } from './support/call.ts';
import { startDatabases } from './support/databases.ts';
import { summaryOf } from './support/figures.ts';
import { circumstances } from './support/machine.ts';
import { OPERATOR_KEY, startWorkServer } from './support/servers.ts';
import { inParallel, pause } from './support/waiting.ts';

/**
 * 1,000 attached event streams, each of a session of its own, on `src/main.ts` in a process of its own, on a real Postgres with default
 * durability: memory a stream, and from the start of an append to the arrival of its event; then 100 readers of one session. Server,
 * Postgres and clients share the machine, over the loopback. Each side needs a file descriptor a stream (`ulimit -n`). `npm run bench:streams`.
 */
const STREAMS = 1_000;
const READERS = 100;
const APPENDS = 1_000;
const SHARED_APPENDS = 200;
const ARRIVAL_MS_MAX = 30_000;
const AT_ONCE = 16;

await using postgres = await startDatabases();
/** On a signal the server tells its memory, after what is garbage was collected: freed pages hide in the resident size what is live. */
const TELL_MEMORY = `process.on('SIGUSR2', () => {
  gc();
  const { rss, heapUsed, external } = process.memoryUsage();
  console.log(JSON.stringify({ rss, live: heapUsed + external }));
})`;
const collectable = ['--expose-gc', '--import', `data:text/javascript,${encodeURIComponent(TELL_MEMORY)}`];
type Memory = { readonly rss: number; readonly live: number };
let memory: Memory | undefined;
await using server = await startWorkServer(await postgres.create('bench'), 'src/main.ts', {
  nodeOptions: collectable,
  onLine(line) {
    if (line.startsWith('{"rss"')) memory = JSON.parse(line);
  },
});
/** Who waits for the arrival of an event, by the number in its text. */
const waiting = new Map<string, { left: number; arrived(): void; all(): void }>();
const streams: ClientRequest[] = [];
let appended = 0;
try {
  const { url } = server;
  const { id: environmentId } = await call(url, 'POST', '/v1/environments', { name: 'bench' });
  const create = async () => (await call(url, 'POST', '/v1/sessions', { environment_id: environmentId })).id as string;
  const sessions = await inParallel(Array.from({ length: STREAMS }, () => create));
  const shared = await create();
  // As much as is appended later: what a warm server keeps is no stream's.
  await inParallel(Array.from({ length: 2 * APPENDS }, (_, n) => () => append(url, sessions[n % STREAMS] ?? '')));
  const before = await weigh();
  await inParallel(sessions.map((id) => () => attach(url, id)));
  const attached = await weigh();
  const random = () => sessions[Math.floor(Math.random() * sessions.length)] ?? '';
  const single = await arrivals(url, APPENDS, 1, 1, random);
  const many = await arrivals(url, APPENDS, AT_ONCE, 1, random);
  const after = await weigh();
  await inParallel(Array.from({ length: READERS }, () => () => attach(url, shared)));
  const crowd = await arrivals(url, SHARED_APPENDS, 1, READERS, () => shared);

  const kib = (bytes: number) => `${(bytes / STREAMS / 1_024).toFixed(1)} KiB`;
  const mib = (bytes: number) => `${(bytes / 1_048_576).toFixed(0)} MiB`;
  const descriptors = (process.report.getReport() as { userLimits?: { open_files?: { soft: unknown } } }).userLimits;
  for (const line of circumstances(postgres.version)) console.log(line);
  console.log(`${STREAMS} streams, each of its own session; ulimit -n ${descriptors?.open_files?.soft}`);
  for (const [name, { rss, live }] of Object.entries({ before, attached, after })) {
    const a = `${kib(live - before.live)} live, ${kib(rss - before.rss)} resident`;
    console.log(
      `${name.padEnd(15)} live ${mib(live)}, resident ${mib(rss)}${name === 'before' ? '' : `; a stream ${a}`}`,
    );
  }
  console.log(`one at a time   ${summaryOf(single)}`);
  console.log(`${AT_ONCE} at once      ${summaryOf(many)}`);
  console.log(`${READERS} readers     ${summaryOf(crowd)} (each reader's time)`);
} finally {
  for (const stream of streams) stream.destroy();
}

async function weigh(): Promise<Memory> {
  for (let round = 0; round < 3; round++) {
    memory = undefined;
    server.signal('SIGUSR2');
    for (let tries = 0; memory === undefined && tries < 500; tries++) await pause(10);
    await pause(200);
  }
  return memory ?? { rss: Number.NaN, live: Number.NaN };
}

async function attach(url: string, sessionId: string): Promise<void> {
  const headers = { 'x-api-key': OPERATOR_KEY };
  const stream = request(`${url}/v1/sessions/${sessionId}/events/stream`, { headers, agent: false });
  streams.push(stream);
  stream.end();
  const [response] = (await once(stream, 'response')) as [IncomingMessage];
  if (response.statusCode !== 200) throw new Error(`a stream was answered ${response.statusCode}`);
  stream.on('error', () => {});
  let rest = '';
  response.setEncoding('utf8').on('data', (chunk: string) => {
    const frames = (rest + chunk).split('\n\n');
    rest = frames.pop() ?? '';
    for (const frame of frames) {
      const number = /"text":"#(\d+)"/.exec(frame)?.[1];
      if (number !== undefined) waiting.get(number)?.arrived();
    }
  });
}

function append(url: string, sessionId: string, number = ++appended): Promise<unknown> {
  const message = { type: 'agent.message', content: [{ type: 'text', text: `#${number}` }] };
  return call(url, 'POST', `/v1/sessions/${sessionId}/events`, { events: [message] });
}

/** From the start of each append to each arrival, in ms. */
async function arrivals(
  url: string,
  count: number,
  atOnce: number,
  readers: number,
  choose: () => string,
): Promise<number[]> {
  const times: number[] = [];
  const one = async () => {
    const number = ++appended;
    const start = performance.now();
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const late = setTimeout(() => reject(new Error(`event ${number} did not arrive`)), ARRIVAL_MS_MAX);
    const waiter = {
      left: readers,
      arrived() {
        times.push(performance.now() - start);
        if (--waiter.left === 0) waiter.all();
      },
      all: resolve,
    };
    waiting.set(`${number}`, waiter);
    await append(url, choose(), number);
    await promise;
    clearTimeout(late);
    waiting.delete(`${number}`);
  };
  await inParallel(
    Array.from({ length: count }, () => one),
    atOnce,
  );
  return times;
}
