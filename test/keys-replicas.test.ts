import { sql } from 'kysely';
import t, { type Test } from 'tap';
import { createCallers } from '../src/control/credentials.ts';
import { openDatabase } from '../src/db/connect.ts';
import { DatabaseUnavailable } from '../src/db/failures.ts';
import { STATEMENTS, watch } from './support/gates.ts';
import { caller, OPERATOR_KEY, testDatabase, testServer, until } from './support/harness.ts';
import { lastUse, WITHIN_MS } from './support/last-use.ts';
import { inLines, type ManyKey, manyKeys, whoPath } from './support/many-keys.ts';
import { freshDatabase, startMain } from './support/process.ts';

const KEYS = 10_000;
/** Long enough for one use of the key on a busy machine. */
const OVERLAP_SECONDS = 3;
const as = OPERATOR_KEY;

/** Two servers on one database. */
async function twoReplicas(t: Test) {
  const url = await freshDatabase(t);
  const start = () => startMain(t, { DATABASE_URL: url, LEASEHOLD_API_KEY: OPERATOR_KEY });
  const mains = [await start(), await start()] as const;
  const database = await openDatabase({ connectionString: url, poolConnectionsMax: 2 });
  t.teardown(() => database.close());
  return { database, mains, here: caller(mains[0].url), there: caller(mains[1].url) };
}

type Call = Awaited<ReturnType<typeof twoReplicas>>['here'];

const status = async (call: Call, key: ManyKey) => (await call('GET', whoPath(key), { as: key.key })).status;
const lastUseOf = (call: Call, key: ManyKey) => lastUse(() => status(call, key), 403);

t.test(`with ${KEYS} keys in use, what one replica ends is over on the other within a second`, async (t) => {
  const { database, here, there } = await twoReplicas(t);
  const keys = await manyKeys(database, KEYS);
  const statuses = new Set<number>();
  await inLines(keys, 16, async (key) => statuses.add(await status(there, key)));
  t.strictSame([...statuses], [403], 'each is known there');
  const at = (key: ManyKey) => `/control/v1/environments/${key.environmentId}/keys`;

  const [rotated, neighbour, stranger] = [keys.at(5), keys.at(6), keys.at(-1)];
  if (rotated === undefined || neighbour === undefined || stranger === undefined) throw new Error('no keys');
  for (const key of keys.slice(0, 5)) {
    t.equal(await status(there, key), 403);
    const revoked = await here('DELETE', `${at(key)}/${key.id}`, { as });
    const answeredAt = performance.now();
    t.equal(revoked.status, 200);
    const late = (await lastUseOf(there, key)) - answeredAt;
    t.ok(late < WITHIN_MS, `revoked: the last use was ${late} ms after the answer`);
    t.equal(await status(here, key), 401, 'here, too');
  }

  const rotation = await here('POST', `${at(rotated)}/${rotated.id}/rotate`, {
    as,
    body: { overlap_seconds: OVERLAP_SECONDS },
  });
  const rotatedAt = performance.now();
  const successor = { ...rotated, key: rotation.json.key };
  t.equal(await status(there, successor), 403, 'the new key is good at once');
  const overlapped = (await lastUseOf(there, rotated)) - rotatedAt;
  t.ok(
    overlapped > 0 && overlapped < OVERLAP_SECONDS * 1_000 + WITHIN_MS,
    `rotated: the old one was good for ${overlapped} ms`,
  );
  t.equal(await status(there, successor), 403, 'the new one stays');

  const issued = await here('POST', at(rotated), { as, body: { name: 'short', expires_in_seconds: OVERLAP_SECONDS } });
  const issuedAt = performance.now();
  const short = { ...rotated, key: issued.json.key };
  const lived = (await lastUseOf(there, short)) - issuedAt;
  t.ok(lived > 0 && lived < OVERLAP_SECONDS * 1_000 + WITHIN_MS, `expired: it was good for ${lived} ms`);

  t.equal(await status(there, neighbour), 403);
  t.equal((await here('DELETE', whoPath(neighbour), { as })).status, 200);
  const deletedAt = performance.now();
  const late = (await lastUseOf(there, neighbour)) - deletedAt;
  t.ok(late < WITHIN_MS, `deleted with its environment: the last use was ${late} ms after the answer`);
  t.equal(await status(there, stranger), 403, 'a key of another environment goes on');
});

t.test("a process that ends writes its keys' last uses", async (t) => {
  const { database, mains, there } = await twoReplicas(t);
  const [used, idle] = await manyKeys(database, 2);
  if (used === undefined || idle === undefined) throw new Error('no keys');
  t.equal(await status(there, used), 403);
  mains[1].child.kill('SIGTERM');
  t.match(await mains[1].ended(), { code: 0 });
  const rows = await database.rows(
    sql<{ id: string }>`select c.id from ${database.names.credentials} c where c.last_used_at is not null`,
  );
  t.strictSame(rows, [{ id: used.id }]);
});

t.test(`a request with one of ${KEYS} known keys costs no statement`, async (t) => {
  const plain = await testDatabase(t);
  const keys = await manyKeys(plain, KEYS);
  const all = watch(plain, /./);
  const lookUps = watch(all.database, STATEMENTS.findKey);
  const checks = watch(lookUps.database, STATEMENTS.changedKeys);
  const callers = createCallers({ database: checks.database });
  t.teardown(() => callers.close());
  await inLines(keys, 32, ({ key }) => callers.identify(key));
  t.equal(lookUps.begun(), KEYS, 'the first time each is looked up');
  const [begun, checked, beganAt] = [all.begun(), checks.begun(), performance.now()];
  let identified = 0;
  for (let round = 0; round < 5; round++) {
    await inLines(keys, 32, async ({ key }) => {
      if ((await callers.identify(key))?.kind === 'environment') identified++;
    });
  }
  t.equal(identified, 5 * KEYS);
  t.equal(lookUps.begun(), KEYS, 'and never again');
  const ms = performance.now() - beganAt;
  t.ok(checks.begun() - checked <= 1 + ms / 400, `${checks.begun() - checked} questions in ${ms} ms`);
  // Besides, last uses: written every five seconds.
  const others = all.begun() - begun - (checks.begun() - checked);
  t.ok(others <= 1 + ms / 5_000, `${others} other statements in ${ms} ms`);
});

t.test(
  'while the database is away a known key is 503 once its trust is over, never 401, and then good again',
  async (t) => {
    const plain = await testDatabase(t);
    const checks = watch(plain, STATEMENTS.changedKeys);
    const lookUps = watch(checks.database, STATEMENTS.findKey);
    const { call, environment, environmentKey } = await testServer(t, { database: lookUps.database });
    const key = { id: '', key: environmentKey, environmentId: environment.id };
    t.equal(await status(call, key), 403);
    const away = new DatabaseUnavailable(new Error('away'));
    for (const watched of [checks, lookUps]) watched.fail(away);
    const seen: number[] = [];
    const lost = performance.now();
    let lastAt = lost;
    await until('the trust to be over', async () => {
      const sentAt = performance.now();
      seen.push(await status(call, key));
      if (seen.at(-1) === 403) lastAt = sentAt;
      return seen.at(-1) === 503;
    });
    t.ok(lastAt - lost < WITHIN_MS, 'within a second');
    for (let n = 0; n < 20; n++) seen.push(await status(call, key));
    t.strictSame([...new Set(seen)].sort(), [403, 503]);
    t.strictSame(seen.slice(-20), Array(20).fill(503), 'it stays so');
    for (const watched of [checks, lookUps]) watched.fail(undefined);
    t.equal(await status(call, key), 403, 'at once when the database is back');
  },
);
