import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { Agent, request } from 'node:http';
import { cpus, loadavg } from 'node:os';
import { startPostgres } from '../test/support/postgres.ts';

/**
 * Full cycles (poll, ack, heartbeat, stop) over HTTP with 16 clients against `src/main.ts` in a process of its own, on a real
 * Postgres with default durability. Server, Postgres and clients share the machine. `npm run bench:cycles`.
 */
const CLIENTS = 16;
const ROUNDS = 3;
const ITEMS_PER_ROUND = 2_000;
const OPERATOR_KEY = 'operator-key-of-the-bench';
const agent = new Agent({ keepAlive: true, maxSockets: CLIENTS });

const postgres = await startPostgres();
const server = spawn(process.execPath, [new URL('../src/main.ts', import.meta.url).pathname], {
  env: { PATH: process.env.PATH, DATABASE_URL: postgres.url, LEASEHOLD_API_KEY: OPERATOR_KEY, PORT: '0' },
  stdio: ['ignore', 'pipe', 'inherit'],
});
try {
  const url = await listening();
  const environment = await call(url, 'POST', '/v1/environments', { name: 'bench' });
  const work = `/v1/environments/${environment.id}/work`;
  const workers = (await call(url, 'POST', `/control/v1/environments/${environment.id}/keys`, { name: 'workers' })).key;
  const results: { cyclesPerSecond: number; p50: Record<string, number>; p99: Record<string, number> }[] = [];
  for (let round = 0; round < ROUNDS; round++) {
    await inParallel(
      Array.from({ length: ITEMS_PER_ROUND }, (_, n) => n),
      (n) =>
        call(url, 'POST', `/control/v1/environments/${environment.id}/work`, {
          data: { type: 'session', id: `${round}-${n}` },
        }),
    );
    const times: Record<string, number[]> = { poll: [], ack: [], heartbeat: [], stop: [] };
    const timed = async (name: string, method: string, path: string, body?: unknown) => {
      const start = performance.now();
      const answer = await call(url, method, path, body, workers);
      times[name]?.push(performance.now() - start);
      return answer;
    };
    const start = performance.now();
    await Promise.all(
      Array.from({ length: CLIENTS }, async () => {
        for (;;) {
          const item = await timed('poll', 'GET', `${work}/poll`);
          if (item === null) return;
          await timed('ack', 'POST', `${work}/${item.id}/ack`);
          await timed('heartbeat', 'POST', `${work}/${item.id}/heartbeat?expected_last_heartbeat=NO_HEARTBEAT`);
          await timed('stop', 'POST', `${work}/${item.id}/stop`, { force: true });
        }
      }),
    );
    const seconds = (performance.now() - start) / 1_000;
    results.push({
      cyclesPerSecond: ITEMS_PER_ROUND / seconds,
      p50: quantiles(times, 0.5),
      p99: quantiles(times, 0.99),
    });
  }
  const median = results.toSorted((a, b) => a.cyclesPerSecond - b.cyclesPerSecond)[Math.floor(ROUNDS / 2)];
  console.log(`${new Date().toISOString()}  ${cpus().length} x ${cpus()[0]?.model}  load ${loadavg()[0]?.toFixed(1)}`);
  console.log(`${CLIENTS} clients, ${ROUNDS} rounds of ${ITEMS_PER_ROUND} items, median round:`);
  console.log(`cycles/s    ${median?.cyclesPerSecond.toFixed(0)}`);
  console.log('ms p50     ', median?.p50);
  console.log('ms p99     ', median?.p99);
} finally {
  server.kill('SIGTERM');
  await once(server, 'exit');
  agent.destroy();
  await postgres.stop();
}

async function listening(): Promise<string> {
  let log = '';
  for await (const chunk of server.stdout) {
    log += chunk;
    const address = /listening on (http:[^"\s]+)/.exec(log)?.[1];
    if (address !== undefined) {
      server.stdout.on('data', () => {}).resume();
      return address;
    }
  }
  throw new Error(`the server did not start: ${log}`);
}

// biome-ignore lint/suspicious/noExplicitAny: a bench reads what it expects
async function call(url: string, method: string, path: string, body?: unknown, key = OPERATOR_KEY): Promise<any> {
  const sent = body === undefined ? undefined : JSON.stringify(body);
  const headers = { 'x-api-key': key, ...(sent === undefined ? {} : { 'content-type': 'application/json' }) };
  return new Promise((resolve, reject) => {
    const outgoing = request(`${url}${path}`, { method, headers, agent }, (response) => {
      const chunks: Buffer[] = [];
      response.on('data', (chunk) => chunks.push(chunk));
      response.on('end', () => {
        const text = Buffer.concat(chunks).toString();
        if ((response.statusCode ?? 0) >= 300) reject(new Error(`${method} ${path}: ${response.statusCode} ${text}`));
        else resolve(text === '' ? undefined : JSON.parse(text));
      });
    });
    outgoing.on('error', reject);
    outgoing.end(sent);
  });
}

async function inParallel<T>(items: readonly T[], run: (item: T) => Promise<unknown>): Promise<void> {
  const left = items.values();
  await Promise.all(
    Array.from({ length: CLIENTS }, async () => {
      for (const item of left) await run(item);
    }),
  );
}

function quantiles(times: Record<string, number[]>, q: number): Record<string, number> {
  return Object.fromEntries(
    Object.entries(times).map(([name, ms]) => {
      const sorted = ms.toSorted((a, b) => a - b);
      return [name, Number((sorted[Math.floor(sorted.length * q)] ?? 0).toFixed(2))];
    }),
  );
}
