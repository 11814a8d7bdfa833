import { once } from 'node:events';
import { createServer } from 'node:net';
import pg from 'pg';
import t from 'tap';
import { until } from './support/harness.ts';
import { freePort } from './support/postgres.ts';
import { freshDatabase, request, runMain, startMain } from './support/process.ts';

const OPERATOR_KEY = 'operator-key-of-this-process';

t.test('on Postgres nothing is created unasked, and the operator key works', async (t) => {
  const databaseUrl = await freshDatabase(t);
  const server = await startMain(t, { DATABASE_URL: databaseUrl, LEASEHOLD_API_KEY: OPERATOR_KEY });
  t.match(
    server.log().find(({ address }) => address === server.url),
    { engine: 'postgres' },
  );
  const client = new pg.Client({ connectionString: databaseUrl });
  await client.connect();
  const count =
    'select (select count(*) from leasehold.environments) + (select count(*) from leasehold.credentials) as n';
  t.equal((await client.query(count)).rows[0].n, '0');
  await client.end();
  for (const path of ['/healthz', '/readyz']) t.equal((await request(server.url + path, null)).status, 200, path);

  const created = await request(`${server.url}/v1/environments`, OPERATOR_KEY, { name: 'production' });
  t.match(created, { status: 200, json: { type: 'environment', name: 'production' } });
  const elsewhere = 'operator-key-of-no-process-at-all';
  t.equal((await request(`${server.url}/v1/environments/${created.json.id}`, elsewhere)).status, 401);
  t.notMatch(server.output(), /^export /m, 'no block is printed');
  t.notMatch(server.output(), /there is no API key/);
});

t.test('a server that nobody could administer says so', async (t) => {
  const server = await startMain(t, { DATABASE_URL: await freshDatabase(t) });
  await until('the warning', () => server.log().some(({ msg }) => /there is no API key yet/.test(String(msg))));
});

t.test('two processes that start at once on one empty database both come up', async (t) => {
  const databaseUrl = await freshDatabase(t);
  const client = new pg.Client({ connectionString: databaseUrl });
  await client.connect();
  // Kysely's own migration lock, held until both have reached it.
  await client.query('begin');
  await client.query('select pg_advisory_xact_lock(3853314791062309107)');
  const starts = [0, 1].map(() => startMain(t, { DATABASE_URL: databaseUrl, LEASEHOLD_API_KEY: OPERATOR_KEY }));
  const waiting = `select count(*)::int as n from pg_locks where locktype = 'advisory' and not granted
    and database = (select oid from pg_database where datname = current_database())`;
  await until('both to wait for their turn', async () => (await client.query(waiting)).rows[0].n === 2);
  await client.query('commit');
  await client.end();
  const [one, other] = await Promise.all(starts);
  if (one === undefined || other === undefined) return t.fail('not started');
  for (const { url } of [one, other]) {
    t.match(await request(`${url}/readyz`, null), { status: 200, json: { status: 'ready', schema: 'current' } });
  }
  const { json } = await request(`${one.url}/v1/environments`, OPERATOR_KEY, { name: 'production' });
  t.equal((await request(`${other.url}/v1/environments/${json.id}`, OPERATOR_KEY)).json.name, 'production');
});

t.test('every bad variable is named at once, with exit 1, and no secret is repeated', async (t) => {
  const bad = {
    HOST: 'not a host',
    PORT: '80801',
    DATABASE_URL: 'mysql://user:hunter2@host/db',
    LISTEN_DATABASE_URL: 'hunter2',
    PUBLIC_URL: 'user:hunter2@nowhere',
    SESSIONS_UPSTREAM_URL: 'ftp://user:hunter2@nowhere',
    LEASEHOLD_API_KEY: 'hunter2',
    LEASE_TTL_SECONDS: '0',
    LEASE_TTL_MAX_SECONDS: '1e2',
    STARTUP_LEASE_SECONDS: '-1',
    RECLAIM_OLDER_THAN_MS: '600001',
    SWEEP_INTERVAL_MS: 'often',
    SHUTDOWN_GRACE_SECONDS: '1.5',
    RETENTION_DAYS: ' 7 ',
    LOG_LEVEL: 'loud',
    OTEL_EXPORTER_OTLP_ENDPOINT: 'hunter2',
    OTEL_EXPORTER_OTLP_METRICS_ENDPOINT: 'hunter2',
    OTEL_EXPORTER_OTLP_PROTOCOL: 'grpc',
    OTEL_METRIC_EXPORT_INTERVAL: '0',
  };
  const main = runMain(t, bad);
  t.strictSame(await main.ended(), { code: 1, signal: null });
  const named = main
    .output()
    .trimEnd()
    .split('\n')
    .map((line) => /^leasehold: (\w+) must /.exec(line)?.[1]);
  t.strictSame(named.sort(), Object.keys(bad).sort());
  t.notMatch(main.output(), /hunter2/);
});

t.test('what keeps the server from starting is said in one clear line, with exit 1', async (t) => {
  const holder = createServer().listen(0, '127.0.0.1');
  await once(holder, 'listening');
  t.teardown(() => void holder.close());
  const address = holder.address();
  const taken = typeof address === 'object' ? `${address?.port}` : '';
  const nowhere = `postgres://user:hunter2@127.0.0.1:${await freePort()}/db`;
  const cells: [what: string, variables: Record<string, string>, said: RegExp][] = [
    [
      'port in use',
      { DATABASE_URL: await freshDatabase(t), PORT: taken },
      new RegExp(`could not run: HOST, PORT: .*EADDRINUSE.*:${taken}`),
    ],
    [
      'a folder that cannot be',
      { DATA_DIR: '/proc/nothing/here' },
      /could not run: DATA_DIR \/proc\/nothing\/here cannot be used/,
    ],
    ['database unreachable', { DATABASE_URL: nowhere }, /could not run: DATABASE_URL: .*ECONNREFUSED/],
  ];
  for (const [what, variables, said] of cells) {
    const main = runMain(t, variables);
    t.strictSame(await main.ended(), { code: 1, signal: null }, what);
    const fatal = main.log().filter(({ level }) => level === 60);
    t.equal(fatal.length, 1);
    t.match(JSON.stringify(fatal[0]), said);
    t.notMatch(main.output(), /hunter2/);
  }
});

t.test('the log is JSON, line by line, and holds no key at any level', async (t) => {
  const variables = { DATABASE_URL: await freshDatabase(t), LEASEHOLD_API_KEY: OPERATOR_KEY, LOG_LEVEL: 'trace' };
  const server = await startMain(t, variables);
  const { json: environment } = await request(`${server.url}/v1/environments`, OPERATOR_KEY, { name: 'production' });
  const control = `${server.url}/control/v1/environments/${environment.id}`;
  const work = `${server.url}/v1/environments/${environment.id}/work`;
  const { key } = (await request(`${control}/keys`, OPERATOR_KEY, { name: 'workers' })).json;
  await request(`${control}/work`, OPERATOR_KEY, { data: { type: 'session', id: 'session-1' } });
  const { id, secret } = (await request(`${work}/poll`, key)).json;
  const { sessions_token: token } = JSON.parse(Buffer.from(secret, 'base64url').toString());
  t.equal((await request(`${work}/${id}/ack`, token, {})).status, 200);
  t.equal((await request(`${work}/${id}/heartbeat?expected_last_heartbeat=stale`, token, {})).status, 412);
  t.equal((await request(work, token)).status, 403);
  t.equal((await request(work, `${key}x`)).status, 401);
  server.child.kill('SIGTERM');
  await server.ended();

  const lines = server.output().trimEnd().split('\n');
  for (const line of lines) t.doesNotThrow(() => JSON.parse(line), line);
  t.ok(
    lines.some((line) => line.includes('/ack')),
    'requests are logged at this level',
  );
  const database = new URL(variables.DATABASE_URL).pathname.slice(1);
  for (const [what, text] of Object.entries({ OPERATOR_KEY, key, secret, token, database })) {
    t.notOk(server.output().includes(text), `no ${what}`);
  }
});
