import { createServer } from 'node:http';
import { arrayBuffer } from 'node:stream/consumers';
import t, { type Test } from 'tap';
import { clockCheck, offsetOf } from '../../src/cli/doctor/clock.ts';
import { leasehold, OPERATOR_KEY } from '../support/command-line.ts';
import { listenOnLoopback } from '../support/loopback.ts';
import { freePort } from '../support/postgres.ts';
import { freshDatabase, request, startMain } from '../support/process.ts';

async function place(t: Test) {
  const databaseUrl = await freshDatabase(t);
  const server = await startMain(t, { DATABASE_URL: databaseUrl, LEASEHOLD_API_KEY: OPERATOR_KEY });
  return {
    server,
    environment: { LEASEHOLD_URL: server.url, LEASEHOLD_API_KEY: OPERATOR_KEY, DATABASE_URL: databaseUrl },
    environments: async () =>
      (await request(`${server.url}/v1/environments?include_archived=true`, OPERATOR_KEY)).json.data.length,
  };
}

/** Each check by its name, as text says it, with its remedy. */
function checksOf(out: string): Record<string, string> {
  const checks = [...out.matchAll(/^(ok|warn|fail|skip) +([^:]+): (.*\n(?: {6}.*\n)?)/gm)];
  return Object.fromEntries(checks.map(([, status, name, rest]) => [name, `${status} ${rest}`]));
}

/** A server in front of it, which may change what goes through. */
async function front(t: Test, to: string, change: (path: string, answer: Response) => Response): Promise<string> {
  const server = createServer(async (incoming, outgoing) => {
    const body = new Uint8Array(await arrayBuffer(incoming));
    const headers = new Headers(Object.entries(incoming.headersDistinct).map(([name, values]) => [name, `${values}`]));
    for (const name of ['host', 'connection', 'content-length', 'transfer-encoding']) headers.delete(name);
    const method = incoming.method ?? 'GET';
    const sent = { method, headers, ...(body.length === 0 ? {} : { body }) };
    const answer = change(`${method} ${incoming.url}`, await fetch(`${to}${incoming.url}`, sent));
    const told = ['date', 'content-type', 'request-id'].flatMap((name) => {
      const value = answer.headers.get(name);
      return value === null ? [] : [[name, value] as const];
    });
    outgoing.writeHead(answer.status, Object.fromEntries(told)).end(await answer.text());
  });
  return `http://127.0.0.1:${await listenOnLoopback(t, server)}`;
}

t.test('where all is well it says so, exits with 0, and leaves nothing behind', async (t) => {
  const { environment, environments } = await place(t);
  const { code, out, err } = await leasehold('doctor', { environment });
  t.strictSame([code, err], [0, ''], out);
  t.match(checksOf(out), {
    configuration: /^ok /,
    server: /^ok .* answers, version \d+\.\d+\.\d+/,
    'server clock': /^ok within 2 s of ours/,
    'server database': /^ok reached, its schema is current/,
    'API key': /^ok lets us in/,
    database: /^ok reached, Postgres \d/,
    'database clock': /^ok /,
    'server and database clocks': /^ok /,
    migrations: /^ok all are applied/,
    notifications: /^ok came through in \d+ ms/,
    cycle: /^ok enqueue, poll, ack, heartbeat and stop in \d+ ms; its environment is deleted/,
  });
  t.equal(await environments(), 0);
  const { DATABASE_URL: _, ...remote } = environment;
  const said = await leasehold('doctor --json', { environment: remote });
  t.equal(said.code, 0);
  const { is_well, checks } = JSON.parse(said.out);
  t.equal(is_well, true);
  t.match(
    checks.find(({ name }: { name: string }) => name === 'database'),
    { status: 'skip', message: 'DATABASE_URL is not set' },
  );
});

t.test(
  'no server, a database without its tables, notifications that get lost: each is named with its remedy',
  async (t) => {
    const environment = {
      ...{ LEASEHOLD_URL: `http://127.0.0.1:${await freePort()}`, LEASEHOLD_API_KEY: OPERATOR_KEY },
      ...{ DATABASE_URL: await freshDatabase(t), LISTEN_DATABASE_URL: await freshDatabase(t) },
    };
    const { code, out } = await leasehold('doctor', { environment });
    t.equal(code, 1);
    t.strictSame(Object.keys(checksOf(out)).includes('API key'), false, 'what depends on a server is not asked');
    t.match(checksOf(out), {
      configuration: /^ok /,
      server: /^fail .*ECONNREFUSED.*\n {6}start one \(leasehold serve\)/,
      database: /^ok /,
      migrations: /^fail some are missing\n {6}leasehold migrate/,
      notifications: /^fail none came, within 5 s\n {6}.*LISTEN_DATABASE_URL must be a direct connection/,
      cycle: /^skip /,
    });
    t.match(await leasehold('migrate', { environment }), { code: 0, out: /^(applied \d{4}_\w+\n)+$/ });
    t.match(await leasehold('migrate', { environment }), { code: 0, out: 'nothing to do: the schema is current\n' });
  },
);

t.test('wrong variables, and a key that is nobody’s', async (t) => {
  const { environment } = await place(t);
  const wrong = { LEASEHOLD_API_KEY: 'of-nobody-at-all', PORT: 'http', MAX_ATTEMPTS: '0' };
  const { code, out } = await leasehold('doctor', { environment: { ...environment, ...wrong } });
  t.equal(code, 1);
  t.match(checksOf(out), {
    configuration: /^fail PORT must be an integer .*; MAX_ATTEMPTS must be an integer .*\n {6}a server with these/,
    server: /^ok /,
    'API key': /^fail .*\(401 authentication_error, req_\S+\)\n {6}an operator's key/,
    database: /^skip the configuration comes first/,
    cycle: /^skip no server that lets us in/,
  });
  const { LEASEHOLD_API_KEY: _, ...nobody } = environment;
  const said = await leasehold('doctor --json', { environment: nobody });
  t.equal(said.code, 1);
  t.match(JSON.parse(said.out), { is_well: false });
  t.match(said.out, /LEASEHOLD_API_KEY must be set/);
});

t.test('a database that cannot be reached, and what is no server of ours', async (t) => {
  const port = await listenOnLoopback(
    t,
    createServer((_, response) => response.end('<html>hello</html>')),
  );
  const environment = {
    ...{ LEASEHOLD_URL: `http://127.0.0.1:${port}`, LEASEHOLD_API_KEY: OPERATOR_KEY },
    DATABASE_URL: `postgres://user:hunter2@127.0.0.1:${await freePort()}/db`,
  };
  const { code, out } = await leasehold('doctor', { environment });
  t.equal(code, 1);
  t.match(checksOf(out), {
    server: /^fail .* does not answer as a server of ours: 200 <html>hello<\/html>/,
    database: /^fail connect ECONNREFUSED .*\n {6}see to DATABASE_URL/,
  });
  t.notMatch(out, /hunter2/);
});

t.test('another version and another clock are warnings', async (t) => {
  const { server, environment } = await place(t);
  const url = await front(t, server.url, (path, answer) => {
    const ahead = new Headers({
      date: new Date(Date.now() + 60_000).toUTCString(),
      'content-type': 'application/json',
    });
    return path === 'GET /healthz' ? Response.json({ status: 'ok', version: '9.9.9' }, { headers: ahead }) : answer;
  });
  const key = (await leasehold('keys issue looker --api --role read_only -q', { environment })).out.trim();
  const looker = await leasehold('doctor', { environment: { ...environment, LEASEHOLD_API_KEY: key } });
  t.match(checksOf(looker.out), {
    'API key': /^ok/,
    cycle: /^fail create: .*\(403 .*\n {6}a read_only key may look alone/,
  });
  const since = performance.now();
  const { code, out } = await leasehold(`doctor --url ${url}`, { environment });
  const seconds = (performance.now() - since) / 1_000;
  t.equal(code, 0, out);
  t.match(checksOf(out), {
    server: /^warn its version is 9\.9\.9, ours \d/,
    'server clock': /^warn \d+\.\d s ahead of ours\n {6}set both by network time/,
    'server and database clocks': /^warn \d+\.\d s ahead of/,
    cycle: /^ok /,
  });
  // Of a Date header half a second is not known, nor what became of the time that the answer took.
  for (const [, ahead] of out.matchAll(/([\d.]+) s ahead of/g)) {
    t.ok(Math.abs(Number(ahead) - 60) <= 0.6 + seconds, `${ahead} s`);
  }
});

t.test('what the way of a slow answer explains is no difference of clocks', async (t) => {
  for (const [aheadMs, unsureMs, status] of [
    [2_000, 0, 'ok'],
    [2_001, 0, 'warn'],
    [-2_001, 0, 'warn'],
    [3_000, 1_000, 'ok'],
    [-3_000, 1_000, 'ok'],
    [3_000, 999, 'warn'],
  ] as const) {
    t.equal(clockCheck('clock', { aheadMs, unsureMs }).status, status, `${aheadMs} ± ${unsureMs} ms`);
  }
  t.strictSame(offsetOf(5_000, 1_000, 3_000), { aheadMs: 3_000, unsureMs: 1_000 });
});

t.test('a step that fails is named, and what was made for it is removed', async (t) => {
  const { server, environment, environments } = await place(t);
  const url = await front(t, server.url, (path, answer) =>
    path.endsWith('/ack')
      ? Response.json({ type: 'error', error: { type: 'api_error', message: 'said' } }, { status: 500 })
      : answer,
  );
  const { code, out } = await leasehold(`doctor --url ${url}`, { environment });
  t.equal(code, 1);
  t.match(checksOf(out), { cycle: /^fail ack: said \(500 api_error\)\n {6}the log of the server/ });
  t.equal(await environments(), 0);
});
