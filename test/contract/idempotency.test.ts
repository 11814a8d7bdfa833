import { sql } from 'kysely';
import t from 'tap';
import { issueKey } from '../../src/control/keys.ts';
import type { Database } from '../../src/db/connect.ts';
import { hashCanonically } from '../../src/http/canonical.ts';
import {
  CONTROL_CHANGES,
  documentedChanges,
  everything,
  freshPlace,
  isControlChange,
  keyIn,
  patternOf,
  rowCounts,
  said,
  send,
  sendingOf,
} from '../support/changes.ts';
import { ENGINES, OPERATOR_KEY, testServer } from '../support/harness.ts';
import { checkRefusal } from '../support/wire.ts';

t.test(
  'every change under /control/v1 is among the routes that are tried here, and says what a retry is told',
  async (t) => {
    const tried = CONTROL_CHANGES.map((route) => `${route.method} ${patternOf(route)}`);
    const documented = (await documentedChanges()).filter(isControlChange);
    t.not(documented.length, 0);
    for (const { method, path, headers, statuses } of documented) {
      t.ok(tried.includes(`${method} ${path}`), `${method} ${path} is in ROUTES of test/support/wire.ts`);
      t.ok(headers.includes('idempotency-key'), `${method} ${path} names ChangeHeaders`);
      t.ok(statuses.includes('409'), `${method} ${path} names 409`);
    }
  },
);

t.test('a request is the same in whatever order its keys come, and no other request is', async (t) => {
  const hash = hashCanonically({ a: 1, b: { c: [1, '2', null], d: true } });
  t.equal(hashCanonically({ b: { d: true, c: [1, '2', null] }, a: 1 }), hash);
  const others = [
    { a: 1, b: { c: [1, 2, null], d: true } },
    { a: 1, b: { c: ['2', 1, null], d: true } },
    { a: 1, b: { c: { 0: 1, 1: '2', 2: null }, d: true } },
    { a: 1, b: { c: [1, '2'], d: true } },
    { a: 1, b: { c: [1, '2', null] }, d: true },
  ];
  for (const other of others) t.not(hashCanonically(other), hash, JSON.stringify(other));
  const deep = JSON.parse('['.repeat(200_000) + ']'.repeat(200_000));
  t.match(hashCanonically(deep), /^[\w-]{43}$/, 'a body that nests as deep as a body can');
});

/** Tests move rows, not clocks (design §3). */
const age = (database: Database, key: string, interval: string) =>
  database.rows(sql`update ${database.names.idempotencyKeys}
    set created_at = clock_timestamp() - ${interval}::interval where key = ${key}`);

for (const engine of ENGINES) {
  t.test(engine, async (t) => {
    const server = await testServer(t, { engine });
    const { call, database, environment } = server;
    const other = await issueKey(database, { environmentId: null, name: 'another caller' });
    const path = `/control/v1/environments/${environment.id}/work`;
    let count = 0;
    const fresh = (what = 'key') => `${what} ${count++}`;
    const enqueue = (key: string, session: string, to = path) =>
      call('POST', to, {
        as: OPERATOR_KEY,
        headers: { 'idempotency-key': key },
        body: { data: { type: 'session', id: session } },
      });
    const stopItem = (id: string) => call('POST', server.work(`/${id}/stop`), { as: OPERATOR_KEY });

    for (const [index, route] of CONTROL_CHANGES.entries()) {
      t.test(`${route.name}: a repeat is answered the same and changes nothing`, async (t) => {
        const [place, elsewhere] = [await freshPlace(server, fresh('place')), await freshPlace(server, fresh('place'))];
        const key = fresh();
        const sending = sendingOf(route, place, key);
        const first = await send(server, sending);
        t.equal(first.status, route.success);
        const before = await rowCounts(database);
        const again = await send(server, sending);
        const secret = keyIn(first);
        if (secret === undefined) {
          t.strictSame(said(again), said(first));
          t.equal(again.headers.get('content-type'), first.headers.get('content-type'));
        } else {
          checkRefusal(t, again, 409, 'an answer that held a secret');
          t.match(again.json.error.message, first.json.id, 'the key is named by its id');
          t.notOk((await everything(database)).includes(secret), 'the secret is stored nowhere');
        }
        t.not(again.headers.get('request-id'), first.headers.get('request-id'));

        const another = CONTROL_CHANGES[(index + 1) % CONTROL_CHANGES.length] ?? route;
        const others = [sendingOf(another, place, key), sendingOf(route, elsewhere, key)];
        for (const next of others.filter(({ path }) => path !== sending.path)) {
          const had = await rowCounts(database);
          const refused = await send(server, next);
          checkRefusal(t, refused, 409, `the same key for ${next.method} ${next.path}`);
          t.match(refused.json.error.message, /Idempotency-Key.*another request/);
          t.strictSame(await rowCounts(database), had);
        }
        t.strictSame(await rowCounts(database), before);

        const theirs = await send(server, sendingOf(route, elsewhere, key, other.key));
        t.equal(theirs.status, route.success, "another caller's same key is its own");
      });
    }

    t.test('the same body with its keys in another order is the same request; another body is not', async (t) => {
      const key = fresh();
      const as = (raw: string) =>
        call('POST', path, {
          as: OPERATOR_KEY,
          headers: { 'idempotency-key': key, 'content-type': 'application/json' },
          raw,
        });
      const first = await as('{"data":{"type":"session","id":"ordered"},"metadata":{"a":"1","b":"2"}}');
      t.equal(first.status, 201);
      const again = await as('{ "metadata": {"b":"2","a":"1"}, "data": {"id":"ordered","type":"session"} }');
      t.strictSame(said(again), said(first));
      checkRefusal(t, await as('{"data":{"type":"session","id":"ordered"}}'), 409, 'another body');
    });

    t.test('a refusal is answered again, also when the request would succeed by then', async (t) => {
      const [key, id] = [fresh(), `env_later_${engine}`];
      const to = `/control/v1/environments/${id}/work`;
      const first = await enqueue(key, 'refused', to);
      checkRefusal(t, first, 404, 'no such environment');
      await database.rows(
        database.kysely
          .insertInto('environments')
          .values({ id, name: fresh('later'), description: null, type: 'self_hosted' }),
      );
      const again = await enqueue(key, 'refused', to);
      checkRefusal(t, again, 404, 'again');
      t.strictSame(said(again), said(first), 'message and details, too');
      t.equal((await enqueue(fresh(), 'refused', to)).status, 201, 'another key acts');
    });

    t.test('what never came to the act is not remembered: a corrected body acts under the same key', async (t) => {
      const key = fresh();
      checkRefusal(t, await enqueue(key, ''), 400, 'a bad body');
      t.equal((await enqueue(key, 'corrected')).status, 201);
    });

    t.test('nor is bad input that only the act finds', async (t) => {
      const control = `/control/v1/environments/${environment.id}`;
      const data = { type: 'session', id: fresh() };
      const tooLong = 'x'.repeat(262_145);
      for (const [method, path, bad, good, status] of [
        ['POST', '/work', { data, metadata: { '': 'a key without characters' } }, { data }, 201],
        ['POST', '/work', { data, input: tooLong }, { data }, 200],
        ['POST', '/work/batch', { items: [{ data, input: tooLong }] }, { items: [{ data }] }, 200],
        ['PATCH', '/settings', { lease_ttl_seconds: 86_400 }, { lease_ttl_seconds: 60 }, 200],
      ] as const) {
        const asked = { as: OPERATOR_KEY, headers: { 'idempotency-key': fresh() } };
        checkRefusal(t, await call(method, `${control}${path}`, { ...asked, body: bad }), 400, path);
        t.equal((await call(method, `${control}${path}`, { ...asked, body: good })).status, status, path);
      }
    });

    t.test('an answer is given for a day, by the database; then the key acts and is answered anew', async (t) => {
      const key = fresh();
      const first = await enqueue(key, 'aged');
      await stopItem(first.json.id);
      await age(database, key, '23 hours 59 minutes');
      t.equal((await enqueue(key, 'aged')).json.id, first.json.id, 'not yet a day');
      await age(database, key, '24 hours 1 second');
      const second = await enqueue(key, 'aged');
      t.equal(second.status, 201);
      t.not(second.json.id, first.json.id, 'past a day');
      await stopItem(second.json.id);
      t.equal((await enqueue(key, 'aged')).json.id, second.json.id, 'the new answer took its place');
      await age(database, key, '24 hours 1 second');
      t.equal((await enqueue(key, 'another request')).status, 201, 'past a day it may be another request');
    });

    t.test('a key has 1 to 255 printable ASCII characters; all else is refused and changes nothing', async (t) => {
      const before = await rowCounts(database);
      for (const key of ['', 'x'.repeat(256), 'caf\u00e9', 'a\tb']) {
        const answer = await enqueue(key, 'bad header');
        checkRefusal(t, answer, 400, JSON.stringify(key).slice(0, 20));
        t.match(answer.json.error.message, /Idempotency-Key must be 1 to 255 printable ASCII/);
      }
      t.strictSame(await rowCounts(database), before);
      for (const key of ['!', 'x'.repeat(255), 'a b', `{"'\\~`]) {
        t.equal((await enqueue(key, fresh('good header'))).status, 201, key.slice(0, 20));
      }
    });

    t.test('the official routes know no such header', async (t) => {
      const create = (key: string) =>
        call('POST', '/v1/environments', {
          as: OPERATOR_KEY,
          headers: { 'idempotency-key': key },
          body: { name: 'official' },
        });
      t.equal((await create('official')).status, 200);
      checkRefusal(t, await create('official'), 409, 'the name is taken: it acted again');
      checkRefusal(t, await create('x'.repeat(300)), 409, 'and is not refused for the header');
    });
  });
}
