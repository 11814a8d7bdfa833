import t from 'tap';
import { OPERATOR_KEY, testDatabase, testServer, until } from './support/harness.ts';
import { freshDatabase, startMain } from './support/process.ts';
import { silentProxy } from './support/silent-proxy.ts';

t.test('a database that goes silent is 503 within a bound on every call, and the pool recovers', async (t) => {
  const proxy = await silentProxy(t);
  const options = { connectionString: proxy.url, statementTimeoutMs: 200, poolConnectionsMax: 2 };
  const database = await testDatabase(t, 'postgres', options);
  const { call, work, enqueue } = await testServer(t, { database });
  const id = await enqueue('session-1');
  await call('GET', work('/poll')); // the key is known from here on
  proxy.silence();
  const calls = [
    ['GET', '/poll'],
    ['GET', '/poll?block_ms=100'],
    ['POST', `/${id}/ack`],
    ['POST', `/${id}/heartbeat?expected_last_heartbeat=NO_HEARTBEAT`],
    ['POST', `/${id}/stop`],
  ] as const;
  const answers = await Promise.all(calls.map(([method, path]) => call(method, work(path))));
  for (const [n, { status, headers }] of answers.entries()) {
    // The official Go worker gives an ack two more tries, then force-stops the item: it is told to take its time.
    const retry = calls[n]?.[1].endsWith('/ack') ? '10' : '1';
    t.match({ status, retry: headers.get('retry-after') }, { status: 503, retry }, calls[n]?.[1] ?? '');
  }
  proxy.heal();
  // What still waits for an answer when it heals may fail one more call: the question whose keys were revoked, say.
  const tries: number[] = [];
  await until(
    'it recovers',
    async () => tries[tries.push((await call('POST', work(`/${id}/ack`))).status) - 1] === 200,
  );
  t.ok(tries.length <= 2, `no silenced connection is used again: ${tries}`);
  t.equal((await call('GET', work(`/${id}`))).json.state, 'starting');
});

t.test('SIGTERM ends a process whose database is silent, though not as a clean end', async (t) => {
  const proxy = await silentProxy(t, await freshDatabase(t));
  const server = await startMain(t, {
    DATABASE_URL: proxy.url,
    LEASEHOLD_API_KEY: OPERATOR_KEY,
    SWEEP_INTERVAL_MS: '10',
    SHUTDOWN_GRACE_SECONDS: '0',
  });
  proxy.silence();
  await until('the background to wait for an answer', () => proxy.heard() > 0);
  server.child.kill('SIGTERM');
  t.strictSame(await server.ended(), { code: 1, signal: null });
  t.match(server.log().at(-1), { msg: 'not everything could be closed in time, leaving' });
});
