import t from 'tap';
import { ControlError, createRemoteLocks, type RemoteLocksOptions } from '../../src/client/index.ts';
import { createLocks, type SingleFlightOptions } from '../../src/index.ts';
import { OPERATOR_KEY, testServer, until } from '../support/harness.ts';
import { holding } from '../support/interleave.ts';
import { expireLock, lockRow } from '../support/locks.ts';

/** What `check` looks for is never there: each flight runs. */
const nothing = () => undefined;

const server = await testServer(t);
const { database, queue, environment, environmentKey, url } = server;
const ref = (name: string) => ({ environmentId: environment.id, name });
const library = createLocks({ database, queue, environmentId: environment.id });
const remote = (options: Partial<RemoteLocksOptions> = {}) =>
  createRemoteLocks({ baseUrl: url, apiKey: OPERATOR_KEY, environmentId: environment.id, ...options });
const listOf = async () => (await library.list()).items.map(({ name }) => name);

type Fly = (name: string, options: SingleFlightOptions<string>) => Promise<string>;
const WAYS: [string, Fly][] = [
  ['the library', library.singleFlight],
  ['HTTP', remote().singleFlight],
];

for (const [way, fly] of WAYS) {
  t.test(`${way}: a call runs under a lock that is renewed, and let go at its end`, async (t) => {
    const name = `renewed ${way}`;
    const answer = await fly(name, {
      check: nothing,
      ttlSeconds: 12, // the renewal comes after a third: a busy machine has the rest
      async run({ token, signal }) {
        const first = await lockRow(database, ref(name));
        t.match(first, { token });
        await until('a renewal', async () => (await lockRow(database, ref(name)))?.expires_at !== first?.expires_at);
        t.equal(signal.aborted, false);
        return 'made';
      },
    });
    t.equal(answer, 'made');
    t.notOk((await listOf()).includes(name));
  });

  t.test(`${way}: a lock that was lost aborts the call, and the next holder is left alone`, async (t) => {
    const name = `lost ${way}`;
    const flight = fly(name, {
      check: nothing,
      ttlSeconds: 1,
      async run({ signal }) {
        await expireLock(database, ref(name));
        await library.acquire({ name, owner: 'the next' });
        await until('the abort', () => signal.aborted);
        throw signal.reason;
      },
    });
    await t.rejects(flight, { name: 'LockLost', code: 'lock_lost' });
    t.match(await lockRow(database, ref(name)), { owner: 'the next' });
    t.ok((await listOf()).includes(name));
  });

  t.test(`${way}: two flights of one process are two owners`, async (t) => {
    const name = `twice ${way}`;
    const [leaving, gate] = [new AbortController(), Promise.withResolvers<string>()];
    let runs = 0;
    const run = () => {
      runs++;
      return gate.promise;
    };
    const first = fly(name, { check: nothing, run });
    await until('it is held', async () => (await listOf()).includes(name));
    let looks = 0;
    const second = fly(name, { check: () => void looks++, run, signal: leaving.signal });
    await until('the second one waits', () => looks > 0);
    gate.resolve('made');
    t.equal(await first, 'made');
    t.equal(await second, 'made');
    t.equal(runs, 2, 'one after the other');
  });

  t.test(`${way}: what the server refuses comes out`, async (t) => {
    const flight = fly('x'.repeat(257), { check: nothing, run: () => 'made' });
    await t.rejects(flight, { message: /name must be a string of 1 to 256 characters/ });
    await t.rejects(fly('badly', { check: nothing, run: () => 'made', ttlSeconds: 3_601 }), { message: /3600/ });
  });
}

t.test('over HTTP every answer may be lost once: the call runs once, and the lock is free at the end', async (t) => {
  const lost = new Set<string>();
  let runs = 0;
  const locks = remote({
    sleep: async () => {},
    async fetch(input, init) {
      const response = await fetch(input, init);
      const what = `${init?.method} ${new URL(String(input)).pathname.split('/').at(-1)}`;
      if (lost.has(what)) return response;
      lost.add(what);
      throw new TypeError('the answer was lost');
    },
  });
  const answer = await locks.singleFlight('answers-lost', {
    check: nothing,
    run: async () => {
      runs++;
      return 'made';
    },
  });
  t.strictSame([answer, runs], ['made', 1]);
  t.strictSame([...lost], ['PUT answers-lost', 'POST release']);
  t.notOk((await listOf()).includes('answers-lost'));
});

t.test("keys of the environment and tokens of its items fly, too; another's are refused", async (t) => {
  const { sessionsToken } = await holding(server, 'in flight', 'active');
  for (const apiKey of [environmentKey, sessionsToken]) {
    t.equal(await remote({ apiKey }).singleFlight('by workers', { check: nothing, run: () => 'made' }), 'made');
  }
  const nowhere = remote({ environmentId: 'env_nowhere' }).singleFlight('x', { check: nothing, run: () => 'made' });
  await t.rejects(nowhere, { name: 'ControlError', status: 404 });
  const stranger = remote({ apiKey: 'nobody' }).singleFlight('x', { check: nothing, run: () => 'made' });
  t.ok((await stranger.catch((error: unknown) => error)) instanceof ControlError);
});

t.test(
  "over HTTP whoever waits is told of the release by the environment's events, and opens no stream without waiting",
  async (t) => {
    let [asked, streams] = [0, 0];
    const open = new Set<AbortSignal>();
    const locks = remote({
      fetch(input, init) {
        if (init?.method === 'PUT') asked++;
        if (`${input}`.endsWith('/events') && init?.signal) {
          streams++;
          open.add(init.signal);
          init.signal.addEventListener('abort', () => open.delete(init.signal as AbortSignal));
        }
        return fetch(input, init);
      },
    });
    t.equal(await locks.singleFlight('free', { check: nothing, run: () => 'made' }), 'made');
    t.strictSame([asked, streams], [1, 0]);
    const { token } = await library.acquire({ name: 'told', owner: 'one', ttlSeconds: 3_600 });
    let isLeft = false;
    const check = () => (isLeft ? 'left by the holder' : undefined);
    const flights = [1, 2].map(() => locks.singleFlight('told', { check, run: () => 'made' }));
    // Once as it comes, once as it begins to listen, once when it is told that it does: from then on by the hour.
    await until('both wait for word', () => asked >= 5 && server.app.openStreams() === 1); // and have looked again since it is open
    isLeft = true;
    await library.release({ name: 'told', token });
    t.same(await Promise.all(flights), ['left by the holder', 'left by the holder']);
    t.equal(streams, 1, 'one for both');
    t.equal(open.size, 0, 'gone with the last one');
  },
);

t.test('over HTTP a server without events is asked by the clock', async (t) => {
  const locks = remote({
    fetch: async (input, init) =>
      `${input}`.endsWith('/events') ? new Response('', { status: 404 }) : fetch(input, init),
  });
  const { token } = await library.acquire({ name: 'untold', owner: 'one', ttlSeconds: 3_600 });
  let looks = 0;
  const check = () => (++looks > 3 ? 'left by the holder' : undefined);
  const flight = locks.singleFlight('untold', { check, run: () => 'made' });
  t.equal(await flight, 'left by the holder');
  await library.release({ name: 'untold', token });
});
