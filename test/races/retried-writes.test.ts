import { sql } from 'kysely';
import t, { type Test } from 'tap';
import { auditOf, CONTROL_CHANGES, freshPlace, keyIn, rowCounts, said, send, sendingOf } from '../support/changes.ts';
import { type Answer, OPERATOR_KEY, type Server, testClient, testDatabase, testServer } from '../support/harness.ts';
import { hold } from '../support/interleave.ts';
import { checkRefusal } from '../support/wire.ts';

const REPEATS = 100;

/** Two servers on one schema, each with few connections, so that whoever waited would take them all. */
async function twoServers(t: Test): Promise<[Server, Server]> {
  const one = await testDatabase(t, 'postgres', { poolConnectionsMax: 4 });
  const other = await testDatabase(t, 'postgres', { schema: one.schema, poolConnectionsMax: 4 });
  return [await testServer(t, { database: one }), await testServer(t, { database: other })];
}

const isInProgress = ({ status, json, headers }: Answer): boolean =>
  status === 409 && json.error.details?.error_code === 'idempotency_in_progress' && headers.get('retry-after') === '1';

const added = (before: Record<string, number>, after: Record<string, number>) =>
  Object.fromEntries(Object.entries(after).map(([table, count]) => [table, count - (before[table] ?? 0)]));

t.test('a hundred repeats at once, to two servers, act once', async (t) => {
  const servers = await twoServers(t);
  const [server] = servers;
  const { database } = server;
  for (const route of CONTROL_CHANGES) {
    t.test(route.name, async (t) => {
      const single = await freshPlace(server, `${route.name} once`);
      const begin = await rowCounts(database);
      const alone = await send(server, sendingOf(route, single, `${route.name} once`));
      t.equal(alone.status, route.success);
      const once = added(begin, await rowCounts(database));

      const place = await freshPlace(server, route.name);
      const before = await rowCounts(database);
      const sending = sendingOf(route, place, route.name);
      const answers = await Promise.all(
        Array.from({ length: REPEATS }, (_, n) => send(servers[n % 2] ?? server, sending)),
      );
      t.strictSame(added(before, await rowCounts(database)), once, 'as many rows as one call writes');

      const final = await send(server, sending);
      const answered = answers.filter((answer) => !isInProgress(answer));
      t.not(answered.length, 0, 'one was answered');
      const shown = answered.filter((answer) => keyIn(answer) !== undefined);
      t.equal(shown.length, keyIn(alone) === undefined ? 0 : 1, 'a secret is shown once');
      for (const answer of answered.filter((answer) => !shown.includes(answer))) {
        t.strictSame(said(answer), said(final), 'the same answer for all');
      }
      for (const answer of shown) t.match(final.json.error.message, answer.json.id, 'the rest is told its id');
    });
  }
});

const enqueue = ({ call, environment }: Server, key: string | undefined, session: string) =>
  call('POST', `/control/v1/environments/${environment.id}/work`, {
    as: OPERATOR_KEY,
    headers: key === undefined ? {} : { 'idempotency-key': key },
    body: { data: { type: 'session', id: session } },
  });

/** Holds the environment's row as its deletion does: an enqueue waits in its insert until the release. */
const holdEnvironment = (t: Test, { database, environment }: Server) =>
  hold(t, database, ({ rows, names }) =>
    rows(sql`select from ${names.environments} where id = ${environment.id} for update`),
  );

t.test('repeats while the first runs are told so at once, and none holds a connection', async (t) => {
  const servers = await twoServers(t);
  const [server] = servers;
  const held = await holdEnvironment(t, server);
  const first = enqueue(server, 'key', 'session');
  await held.untilBlocked();
  const repeats = await Promise.all(
    Array.from({ length: 20 }, (_, n) => enqueue(servers[n % 2] ?? server, 'key', 'session')),
  );
  for (const repeat of repeats) {
    checkRefusal(t, repeat, 409, 'in progress');
    t.ok(isInProgress(repeat), 'by its code, with retry-after');
  }
  t.same(await auditOf(server), [], 'repeats leave no entry');
  await held.rollback();
  const { status, json } = await first;
  t.equal(status, 201);
  const after = await enqueue(server, 'key', 'session');
  t.equal(after.status, 201);
  t.strictSame(after.json, json, 'then it is answered');
  t.equal((await auditOf(server)).length, 1);
});

t.test('an answer that was committed between the look and the act is given, and the act undone', async (t) => {
  const server = await testServer(t);
  const { database, call, work } = server;
  const earlier = await enqueue(server, 'earlier', 'session');
  await call('POST', work(`/${earlier.json.id}/stop`), { as: OPERATOR_KEY });

  const held = await holdEnvironment(t, server);
  const late = enqueue(server, 'key', 'session');
  await held.untilBlocked();
  // As though another server had answered under the key since this one looked.
  await database.rows(sql`insert into ${database.names.idempotencyKeys} (caller, key, request_hash, answer)
    select caller, 'key', request_hash, answer from ${database.names.idempotencyKeys} where key = 'earlier'`);
  const before = await rowCounts(database);
  await held.rollback();
  const answer = await late;
  t.equal(answer.status, 201);
  t.strictSame(answer.json, earlier.json, 'the answer that was there first');
  t.strictSame(await rowCounts(database), before, 'no item, no entry');
});

t.test('a refusal is recorded only by whoever has the turn then', async (t) => {
  const server = await testServer(t);
  const { database, environment } = server;
  const deletion = await hold(t, database, ({ rows, names }) =>
    rows(sql`delete from ${names.environments} where id = ${environment.id}`),
  );
  const refused = enqueue(server, 'key', 'session');
  await deletion.untilBlocked();
  // Whoever waits for the turn gets it the moment that the refused act is rolled back.
  const rival = await testClient(t);
  const name = JSON.stringify([database.schema, 'retried write', 'operator', 'key']);
  const turn = rival.query('select pg_advisory_lock(hashtextextended($1, 0))', [name]);
  await deletion.untilBlocked(2);
  await deletion.commit();
  t.ok(isInProgress(await refused), 'left to the rival');
  await turn;
  t.match(await rowCounts(database), { idempotencyKeys: 0, auditLog: 0 });
  await rival.query('select pg_advisory_unlock_all()');
  checkRefusal(t, await enqueue(server, 'key', 'session'), 404, 'and the next one acts');
  t.match(await rowCounts(database), { idempotencyKeys: 1, auditLog: 1 });
});
