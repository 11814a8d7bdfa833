import pg from 'pg';
import t, { type Test } from 'tap';
import { createRemoteLocks, type RemoteLocksOptions } from '../../src/client/index.ts';
import { createLocks, createQueue, type Locks, openDatabase } from '../../src/index.ts';
import { caller, OPERATOR_KEY, until } from '../support/harness.ts';
import { lockRoutes } from '../support/locks.ts';
import { PAID_CALLS, payFor } from '../support/paid-call.ts';
import { endListening, freshDatabase, startContender, startMain } from '../support/process.ts';

const CONTENDERS = 50;

/** Two server processes on one database, for all; each test has an environment of its own, and a call that is paid for. */
const databaseUrl = await freshDatabase(t);
const variables = { DATABASE_URL: databaseUrl, LEASEHOLD_API_KEY: OPERATOR_KEY };
const servers = await Promise.all([startMain(t, variables), startMain(t, variables)]);
const urls = servers.map(({ url }) => url);
const client = new pg.Client({ connectionString: databaseUrl });
await client.connect();
await client.query(PAID_CALLS);
t.teardown(() => client.end());

async function place(t: Test) {
  const [url = '', other = ''] = urls;
  const { json } = await caller(url, OPERATOR_KEY)('POST', '/v1/environments', { body: { name: t.name } });
  const environmentId: string = json.id;
  const paid = payFor(databaseUrl, environmentId);
  t.teardown(() => paid.close());
  const routes = (url: string) => lockRoutes({ call: caller(url, OPERATOR_KEY) }, environmentId);
  return {
    environmentId,
    paid,
    here: routes(url),
    there: routes(other),
    /** Every other one asks the other server. */
    remote: (n: number, options: Partial<RemoteLocksOptions> = {}) =>
      createRemoteLocks({ baseUrl: n % 2 === 0 ? url : other, apiKey: OPERATOR_KEY, environmentId, ...options }),
  };
}

/** A replica that is a library in this process. */
async function listening(t: Test) {
  const database = await openDatabase({ connectionString: databaseUrl });
  const queue = createQueue({ database });
  queue.start();
  t.teardown(async () => {
    await queue.close();
    await database.close();
  });
  await until('it listens', queue.isListening);
  return { database, queue };
}

t.test('a lock that one server gave is known to the other, whatever is asked of it', async (t) => {
  const { here, there } = await place(t);
  const first = await here.acquire('call', 'one');
  t.equal((await there.acquire('call', 'other')).json.error.details.expires_at, first.json.expires_at);
  t.equal((await there.acquire('call', 'one')).json.token, first.json.token, 'the same owner, after a lost answer');
  const renewed = await there.renew('call', first.json.token, 300);
  t.match((await here.list()).json.data, [{ token: first.json.token, expires_at: renewed.json.expires_at }]);
  t.equal((await there.release('call', first.json.token)).json.released, true);
  t.equal((await here.release('call', first.json.token)).json.released, false, 'its repeat');
  const second = await here.acquire('call', 'other');
  t.ok(second.json.token > first.json.token);
  await client.query(`update leasehold.locks set expires_at = clock_timestamp() - interval '1 second'`);
  t.equal((await here.renew('call', second.json.token)).status, 409);
  t.match((await there.acquire('call', 'third')).json, { owner: 'third' });
});

t.test(`${CONTENDERS} contenders over two servers pay once, and all get what was paid for`, async (t) => {
  const { paid, remote } = await place(t);
  const contend = (n: number) => remote(n).singleFlight('call', { check: paid.check, run: paid.run });
  const answers = await Promise.all(Array.from({ length: CONTENDERS }, (_, n) => contend(n)));
  const [call, ...others] = await paid.calls();
  t.same(others, []);
  t.same(answers, Array(CONTENDERS).fill(call?.result));
});

t.test(
  `${CONTENDERS} contenders wait for one whose process is killed in its call until its lock has expired, and then pay once`,
  async (t) => {
    const { environmentId, paid, remote, here } = await place(t);
    const doomed = startContender(t, { url: urls[0] ?? '', environmentId, databaseUrl });
    await until('the first to be paying', async () => (await paid.calls()).length === 1);
    const dead = (await here.list()).json.data[0];
    const contend = (n: number) => remote(n).singleFlight('call', { check: paid.check, run: paid.run });
    const answers = Promise.all(Array.from({ length: CONTENDERS }, (_, n) => contend(n)));
    t.equal((await here.acquire('call', 'a look')).status, 409, 'it is held');
    doomed.child.kill('SIGKILL');
    t.match(await doomed.ended(), { signal: 'SIGKILL' });
    const results = await answers;
    const [never, once, ...others] = await paid.calls();
    t.match(never, { token: dead.token, result: null }, 'what was killed was never finished');
    t.equal(once?.result, `paid under ${once?.token}`);
    t.ok(Number(once?.token) > dead.token, 'under a higher token');
    t.same(others, []);
    t.same(results, Array(CONTENDERS).fill(once?.result));
  },
);

t.test(
  'contenders of the library, of HTTP and on two replicas are one crowd; a release wakes the library at once',
  async (t) => {
    const { environmentId, paid, remote } = await place(t);
    const replicas: Locks[] = [];
    for (let n = 0; n < 2; n++) replicas.push(createLocks({ ...(await listening(t)), environmentId }));
    const gate = Promise.withResolvers<void>();
    const looked = new Set<number>();
    const check = (n: number) => {
      looked.add(n);
      return paid.check();
    };
    const first = remote(0).singleFlight('call', {
      ttlSeconds: 3_600, // nobody waits for the expiry
      check: paid.check,
      async run(context) {
        await gate.promise;
        return paid.run(context);
      },
    });
    await until('the first to hold it', async () => (await replicas[0]?.list())?.items.length === 1);
    const others = replicas.flatMap((locks, replica) =>
      Array.from({ length: 5 }, (_, n) =>
        locks.singleFlight('call', { check: () => check(5 * replica + n), run: paid.run }),
      ),
    );
    await until('all to have looked', () => looked.size === 10);
    gate.resolve();
    const result = await first;
    t.same(await Promise.all(others), Array(10).fill(result));
    t.equal((await paid.calls()).length, 1);
  },
);

t.test('a release that nobody was told of is found once LISTEN is back, by whoever waits', async (t) => {
  const { environmentId, here, remote } = await place(t);
  const { database, queue } = await listening(t);
  await here.acquire('call', 'one', 3_600);
  let [isLeft, isOpen, isRefused, isRefusedByLibrary] = [false, false, false, false];
  const watched = {
    ...queue,
    isListening() {
      isRefusedByLibrary = true; // who has the lock does not ask
      return queue.isListening();
    },
  };
  const check = () => (isLeft ? 'left by the holder' : undefined);
  const overHttp = remote(0, {
    async fetch(input, init) {
      const isListening = isOpen;
      const response = await fetch(input, init);
      if (`${input}`.endsWith('/events')) isOpen = true;
      if (isListening && response.status === 409) isRefused = true;
      return response;
    },
  });
  const flights = [
    createLocks({ database, queue: watched, environmentId }).singleFlight('call', { check, run: () => 'made' }),
    overHttp.singleFlight('call', { check, run: () => 'made' }),
  ];
  await until('both to wait for word alone', () => isRefused && isRefusedByLibrary);
  await client.query('delete from leasehold.locks');
  isLeft = true;
  await endListening(client);
  t.same(await Promise.all(flights), ['left by the holder', 'left by the holder']);
});
