import { once } from 'node:events';
import { get } from 'node:http';
import { connect, type Socket } from 'node:net';
import t from 'tap';
import { testServer, until } from './support/harness.ts';
import { freshDatabase, type Listening, request, startMain } from './support/process.ts';

const OPERATOR_KEY = 'operator-key-of-this-process';
/** Far longer than a busy machine takes: what is held up takes all of it. */
const GRACE_SECONDS = 120;
const BLOCK_MS = 999;
const TRIES_MAX = 5;
const POLLS_MAX = 10;

type Tap = Parameters<typeof freshDatabase>[0];

async function start(t: Tap): Promise<Listening & { work: string; workers: string }> {
  const databaseUrl = await freshDatabase(t);
  const server = await startMain(t, {
    DATABASE_URL: databaseUrl,
    LEASEHOLD_API_KEY: OPERATOR_KEY,
    SHUTDOWN_GRACE_SECONDS: `${GRACE_SECONDS}`,
  });
  const { json } = await request(`${server.url}/v1/environments`, OPERATOR_KEY, { name: 'production' });
  return {
    ...server,
    work: `${server.url}/v1/environments/${json.id}/work`,
    workers: `${server.url}/control/v1/environments/${json.id}/workers`,
  };
}

/** Ends the server and tells how long that took; it must have been clean. */
async function endCleanly(t: Tap, { child, ended, log }: Listening, signal: 'SIGTERM' | 'SIGINT'): Promise<void> {
  const [since, before] = [performance.now(), log().length];
  child.kill(signal);
  t.strictSame(await ended(), { code: 0, signal: null });
  t.ok(performance.now() - since < (GRACE_SECONDS * 1_000) / 2, 'well within the grace');
  t.strictSame(
    log()
      .slice(before)
      .filter(({ level }) => Number(level) > 30),
    [],
    'without a complaint',
  );
}

/** A poll that waits, with most of its time before it; one for which that is not known in time is followed by another. */
async function waitingPoll({ work, workers }: Awaited<ReturnType<typeof start>>) {
  for (let n = 1; ; n++) {
    const since = performance.now();
    const headers = { 'x-api-key': OPERATOR_KEY, 'anthropic-worker-id': `worker-${n}` };
    const poll = fetch(`${work}/poll?block_ms=${BLOCK_MS}`, { headers });
    await until('the poll to wait', async () => (await request(workers, OPERATOR_KEY)).json.data.length === n);
    if (performance.now() - since < BLOCK_MS / 2 || n === POLLS_MAX) return { since, poll };
    await (await poll).text();
  }
}

for (const signal of ['SIGTERM', 'SIGINT'] as const) {
  t.test(`${signal} answers a waiting poll with null and ends the process cleanly`, async (t) => {
    for (let tries = 1; ; tries++) {
      const server = await start(t);
      const { since, poll } = await waitingPoll(server);
      const answered = poll.then(async (answer) => {
        const waitedMs = performance.now() - since;
        return {
          status: answer.status,
          text: await answer.text(),
          connection: answer.headers.get('connection'),
          waitedMs,
        };
      });
      await endCleanly(t, server, signal);
      const { waitedMs, ...answer } = await answered;
      // Where the machine stood still meanwhile nothing is known of what ended the wait: another one is asked.
      if (waitedMs >= BLOCK_MS && tries < TRIES_MAX) continue;
      t.strictSame(answer, { status: 200, text: 'null', connection: 'close' });
      t.ok(waitedMs < BLOCK_MS, 'before its time was up');
      return;
    }
  });
}

t.test('whoever comes back for each request, as answers ask for, is served to its end', async (t) => {
  const { app, url, work, environmentKey } = await testServer(t);
  const drained = app.drain(GRACE_SECONDS * 1_000);
  const headers = { authorization: `Bearer ${environmentKey}` };
  const answers = new Set<string>();
  for (let n = 0; n < 200; n++) {
    const asked = get(`${url}${work('/poll')}`, { headers, agent: false }); // a connection of its own
    const [answer] = await once(asked, 'response');
    answers.add(`${answer.statusCode} ${answer.headers.connection}`);
    await once(answer.resume(), 'close');
  }
  t.strictSame([...answers], ['200 close']);
  await drained;
  t.notOk(app.server.listening);
});

async function connectTo(t: Tap, { url }: Listening): Promise<Socket> {
  const { hostname, port } = new URL(url);
  const socket = connect(Number(port), hostname).on('error', () => {});
  t.teardown(() => socket.destroy());
  await once(socket, 'connect');
  return socket;
}

t.test('a keep-alive connection that is idle does not hold the end up', async (t) => {
  const server = await start(t);
  const socket = await connectTo(t, server);
  socket.write('GET /healthz HTTP/1.1\r\nhost: leasehold\r\n\r\n');
  const [answer] = await once(socket, 'data');
  t.match(`${answer}`, /^HTTP\/1\.1 200 /);
  await endCleanly(t, server, 'SIGTERM');
});

t.test('a connection that has asked for nothing yet does not hold the end up', async (t) => {
  const server = await start(t);
  await connectTo(t, server);
  await request(`${server.url}/healthz`, null); // by now the server has accepted the other one too
  await endCleanly(t, server, 'SIGTERM');
});
