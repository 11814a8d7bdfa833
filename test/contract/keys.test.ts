import { createHash } from 'node:crypto';
import { sql } from 'kysely';
import t, { type Test } from 'tap';
import { createCallers } from '../../src/control/credentials.ts';
import { listKeys } from '../../src/control/keys.ts';
import type { Database } from '../../src/db/connect.ts';
import { hashSecret } from '../../src/queue/ids.ts';
import { ENGINES, OPERATOR_KEY, type Server, testServer } from '../support/harness.ts';
import { lastUse, WITHIN_MS } from '../support/last-use.ts';
import { checkRefusal } from '../support/wire.ts';

const as = OPERATOR_KEY;
const YEAR_SECONDS = 31_536_000;
const LIVE_MAX = 1_000;

/** The row as it is. */
async function keyRow({ names }: Database, id: string, { rows }: Database): Promise<Record<string, unknown>> {
  const [row] = await rows(
    sql<{ row: string }>`select to_jsonb(c)::text as row from ${names.credentials} c where c.id = ${id}`,
  );
  return JSON.parse(row?.row ?? 'null');
}

const secondsUntil = (instant: string): number => (Date.parse(instant) - Date.now()) / 1_000;
const near = (t: Test, seconds: number, expected: number, what: string) =>
  t.ok(Math.abs(seconds - expected) < 60, `${what}: ${seconds} s, about ${expected}`);

/** Puts rows there as they would be after so many issues. */
const fill = ({ names, rows }: Database, environmentId: string | null, count: number, columns = '') =>
  rows(sql`
    insert into ${names.credentials} (id, environment_id, name, key_hash, expires_at, revoked_at)
    select 'key_' || md5(random()::text), ${environmentId}, 'filled', md5(random()::text),
      clock_timestamp() + interval '1 day' ${sql.raw(columns === 'expires_at' ? "- interval '2 days'" : '')},
      ${sql.raw(columns === 'revoked_at' ? 'clock_timestamp()' : 'null')}
    from generate_series(1, ${count}::integer)`);

/** Both kinds of keys are managed alike; what tells them apart is where, and two fields. */
async function kinds(server: Server) {
  const environment = async () => {
    const made = await server.call('POST', '/v1/environments', { as, body: { name: `keys ${Math.random()}` } });
    return made.json.id as string;
  };
  const own = await environment();
  return [
    {
      what: 'environment',
      environmentId: own,
      at: `/control/v1/environments/${own}/keys`,
      role: null,
      other: await environment(),
    },
    { what: 'API', environmentId: null, at: '/control/v1/keys', role: 'operator', other: null },
  ] as const;
}

for (const engine of ENGINES) {
  t.test(engine, async (t) => {
    const server = await testServer(t, { engine });
    const { call, database } = server;
    const issue = async (at: string, body: object = {}) => {
      const { status, json } = await call('POST', at, { as, body: { name: 'workers', ...body } });
      if (status !== 201) throw new Error(`${status} ${JSON.stringify(json)}`);
      return json;
    };
    /** The status of a call that any live key of the kind may make. */
    const use = async (environmentId: string | null, key: string) =>
      (await call('GET', `/v1/environments/${environmentId ?? server.environment.id}/work/stats`, { as: key })).status;
    const refusedSoon = async (environmentId: string | null, key: string) => {
      const endedAt = performance.now();
      const late = (await lastUse(() => use(environmentId, key))) - endedAt;
      if (late >= WITHIN_MS) throw new Error(`the last use was ${late} ms after its end`);
    };

    t.test(
      'deleting an environment revokes its live keys, and leaves those that were revoked as they were',
      async (t) => {
        const made = await call('POST', '/v1/environments', { as, body: { name: 'to be deleted' } });
        const at = `/control/v1/environments/${made.json.id}/keys`;
        const [live, over] = [await issue(at), await issue(at)];
        await call('DELETE', `${at}/${over.id}`, { as });
        const before = await keyRow(database, over.id, database);
        t.equal((await call('DELETE', `/v1/environments/${made.json.id}`, { as })).status, 200);
        t.strictSame(await keyRow(database, over.id, database), before);
        t.match(await keyRow(database, live.id, database), { revoked_at: String, changed_at: String });
      },
    );

    for (const { what, environmentId, at, role, other } of await kinds(server)) {
      const row = (id: string) => keyRow(database, id, database);

      t.test(`${what}: an issued key says all about itself, once`, async (t) => {
        const issued = await issue(at);
        const { key, ...told } = issued;
        t.match(key, environmentId === null ? /^lhk_[\w-]{43}$/ : /^lhe_[\w-]{43}$/);
        const { id, created_at, expires_at, ...rest } = told;
        t.match(id, /^key_/);
        t.strictSame(rest, {
          ...{ type: 'key', name: 'workers', hint: key.slice(-4), environment_id: environmentId, role },
          ...{ min_queued_age_ms: 0, last_used_at: null, revoked_at: null },
        });
        near(t, secondsUntil(expires_at), YEAR_SECONDS, 'valid for a year');
        near(t, secondsUntil(created_at), 0, 'as of now');
        t.equal(await use(environmentId, key), 200, 'and is good at once');
        const listed = await call('GET', at, { as });
        const [first] = listed.json.data;
        t.strictSame({ ...first, last_used_at: null }, told, 'it is listed the same');
        t.match(first.last_used_at, /^\d{4}-.*Z$/, 'with its use');
        for (const secret of [key, key.slice(4), createHash('sha256').update(key).digest('base64url')]) {
          t.notOk(listed.text.includes(secret), 'but never the key or its hash');
        }
      });

      t.test(`${what}: what a key is issued with is kept within its limits, and all else refused`, async (t) => {
        near(t, secondsUntil((await issue(at, { expires_in_seconds: 100_000 })).expires_at), 100_000, 'its time');
        near(
          t,
          secondsUntil((await issue(at, { expires_in_seconds: 315_360_000 })).expires_at),
          315_360_000,
          'ten years',
        );
        const before = (await call('GET', at, { as })).json;
        const wrong: [string, unknown[], RegExp][] = [
          ['name', [undefined, '', 5, 'x'.repeat(129), 'a\0b'], /./],
          ['expires_in_seconds', [0, -1, 1.5, '60', 315_360_001, null, 1e300], /1 to 315360000/],
          ['key', ['lhe_mine'], /not a known field/],
          environmentId === null
            ? ['role', ['admin', '', 5, null], /one of operator, read_only/]
            : ['min_queued_age_ms', [-1, 0.5, '5', 86_400_001, null], /0 to 86400000/],
          environmentId === null
            ? ['min_queued_age_ms', [5], /not a known field/]
            : ['role', ['operator'], /not a known field/],
        ];
        for (const [field, values, rule] of wrong) {
          for (const value of values) {
            const answer = await call('POST', at, { as, body: { name: 'workers', [field]: value } });
            checkRefusal(t, answer, 400, `${field} ${value}`);
            t.match(answer.json.error.message, field, 'named');
            t.match(answer.json.error.message, rule, 'with its rule');
          }
        }
        t.strictSame((await call('GET', at, { as })).json, before, 'nothing was made');
      });

      t.test(`${what}: a revoked key is refused within a second, for good; once more changes nothing`, async (t) => {
        const [{ id, key }, neighbour] = [await issue(at), await issue(at)];
        t.equal(await use(environmentId, key), 200);
        const revoked = await call('DELETE', `${at}/${id}`, { as });
        t.match(revoked, { status: 200, json: { id, type: 'key', revoked_at: /Z$/ } });
        t.notOk('key' in revoked.json);
        await refusedSoon(environmentId, key);
        const before = await row(id);
        const again = await call('DELETE', `${at}/${id}`, { as });
        t.equal(again.json.revoked_at, revoked.json.revoked_at);
        t.strictSame(await row(id), before);
        t.equal(await use(environmentId, neighbour.key), 200, 'its neighbour goes on');
      });

      t.test(`${what}: a key is found only where it is`, async (t) => {
        const { id } = await issue(at);
        const before = await row(id);
        const elsewhere =
          other === null
            ? [`/control/v1/environments/${server.environment.id}/keys`]
            : ['/control/v1/keys', `/control/v1/environments/${other}/keys`, '/control/v1/environments/env_x/keys'];
        for (const path of [...elsewhere.map((base) => `${base}/${id}`), `${at}/key_x`, `${at}/work_x`, `${at}/%00`]) {
          checkRefusal(t, await call('DELETE', path, { as }), 404, path);
          checkRefusal(t, await call('POST', `${path}/rotate`, { as }), 404, `${path}/rotate`);
        }
        t.strictSame(await row(id), before);
      });

      t.test(`${what}: a rotated key and its successor are both good during the overlap`, async (t) => {
        const more = environmentId === null ? { role: 'read_only' } : { min_queued_age_ms: 1_234 };
        const old = await issue(at, { name: 'rotated', ...more });
        t.equal(await use(environmentId, old.key), 200);
        const rotated = await call('POST', `${at}/${old.id}/rotate`, { as });
        t.match(rotated, {
          status: 201,
          json: { name: 'rotated', type: 'key', environment_id: environmentId, ...more, revoked_at: null },
        });
        const { id, key, expires_at, hint } = rotated.json;
        t.not(id, old.id);
        t.not(key, old.key);
        t.equal(hint, key.slice(-4));
        near(t, secondsUntil(expires_at), YEAR_SECONDS, 'the new one');
        const { data } = (await call('GET', `${at}?limit=2`, { as })).json;
        t.strictSame([data[0].id, data[1].id], [id, old.id]);
        near(t, secondsUntil(data[1].expires_at), 3_600, 'the old one');
        for (const known of [old.key, key]) t.equal(await use(environmentId, known), 200);
      });

      t.test(`${what}: the overlap may be none, and never outlasts the old key`, async (t) => {
        const old = await issue(at, { expires_in_seconds: 1_000 });
        t.equal(await use(environmentId, old.key), 200);
        const rotate = (body: object) => call('POST', `${at}/${old.id}/rotate`, { as, body });
        for (const [overlap_seconds, left] of [
          [2_592_000, 1_000],
          [500, 500],
          [900, 500],
        ]) {
          const { json } = await rotate({ overlap_seconds, expires_in_seconds: 2_000 });
          near(t, secondsUntil(json.expires_at), 2_000, 'the new one');
          near(t, secondsUntil(String((await row(old.id)).expires_at)), left ?? 0, 'the old one');
        }
        const last = await rotate({ overlap_seconds: 0 });
        t.equal(last.status, 201);
        await refusedSoon(environmentId, old.key);
        t.equal(await use(environmentId, last.json.key), 200);
        for (const body of [
          { overlap_seconds: -1 },
          { overlap_seconds: 2_592_001 },
          { overlap_seconds: '5' },
          { expires_in_seconds: 0 },
          { name: 'x' },
          [],
        ]) {
          checkRefusal(t, await rotate(body), 400, JSON.stringify(body));
        }
      });

      t.test(`${what}: what is over is not rotated`, async (t) => {
        for (const [column, word] of [
          ['revoked_at', 'revoked'],
          ['expires_at', 'expired'],
        ] as const) {
          const { id } = await issue(at);
          await database.rows(sql`update ${database.names.credentials}
            set ${sql.ref(column)} = clock_timestamp() - interval '1 second' where id = ${id}`);
          const before = [await row(id), (await call('GET', at, { as })).json];
          const answer = await call('POST', `${at}/${id}/rotate`, { as });
          checkRefusal(t, answer, 409, column);
          t.match(answer.json.error.message, word);
          t.strictSame([await row(id), (await call('GET', at, { as })).json], before);
        }
      });

      t.test(`${what}: a page reads one key more than it holds, however many there are`, async (t) => {
        await fill(database, environmentId, 20, 'revoked_at');
        const read: number[] = [];
        const counted: Database = {
          ...database,
          async rows(statement, transaction) {
            const rows = await database.rows(statement, transaction);
            read.push(rows.length);
            return rows;
          },
        };
        t.equal((await listKeys(counted, environmentId, { limit: 3 })).items.length, 3);
        t.strictSame(read, [4]);
      });

      t.test(`${what}: pages go from newest to oldest, with what is over, and of one place only`, async (t) => {
        const made: string[] = [];
        for (let n = 0; n < 5; n++) made.unshift((await issue(at)).id);
        await call('DELETE', `${at}/${made[1]}`, { as });
        // All in one instant: then the ids decide, and no page passes one over.
        await database.rows(sql`update ${database.names.credentials} set created_at = '2099-01-01', hint = null
          where id = any(${made}::text[])`);
        const expected = [...made].sort().reverse();
        const seen: string[] = [];
        for (let page: string | null = ''; page !== null && seen.length < 5; ) {
          const { json } = await call('GET', `${at}?limit=2${page && `&page=${page}`}`, { as });
          for (const { id, hint } of json.data.slice(0, 5 - seen.length)) {
            seen.push(id);
            t.equal(hint, null, 'as for keys of before');
          }
          page = json.next_page;
        }
        t.strictSame(seen, expected);
        const all = (await call('GET', `${at}?limit=1000`, { as })).json;
        t.equal(all.next_page, null);
        t.ok(all.data.every((key: { environment_id: unknown }) => key.environment_id === environmentId));
        for (const query of ['limit=0', 'limit=1001', 'limit=x', 'page=', 'page=nobody-gave-this']) {
          const answer = await call('GET', `${at}?${query}`, { as });
          checkRefusal(t, answer, 400, query);
          t.match(answer.json.error.message, query.split('=')[0] ?? '');
        }
      });

      t.test(`${what}: no more than ${LIVE_MAX} are live at once`, async (t) => {
        const { credentials } = database.names;
        const mine = environmentId === null ? sql`environment_id is null` : sql`environment_id = ${environmentId}`;
        await database.rows(sql`delete from ${credentials} where ${mine}`);
        for (const over of ['revoked_at', 'expires_at']) await fill(database, environmentId, 5, over);
        await fill(database, environmentId, LIVE_MAX - 1);
        const last = await issue(at);
        const refused = async (path: string, body: object) => {
          const answer = await call('POST', path, { as, body });
          checkRefusal(t, answer, 409, path);
          t.match(answer.json.error.message, /1000 live/);
        };
        await refused(at, { name: 'one more' });
        await refused(`${at}/${last.id}/rotate`, { overlap_seconds: 1 });
        const [{ count } = { count: 0 }] = await database.rows(
          sql<{ count: number }>`select count(*)::integer as count from ${credentials} where ${mine}`,
        );
        t.equal(count, LIVE_MAX + 10, 'nothing was made');
        const other =
          environmentId === null ? `/control/v1/environments/${server.environment.id}/keys` : '/control/v1/keys';
        await issue(other);
        const next = await call('POST', `${at}/${last.id}/rotate`, { as, body: { overlap_seconds: 0 } });
        t.equal(next.status, 201, 'a rotation without an overlap makes its own room');
        await refused(at, { name: 'one more' });
        t.equal((await call('DELETE', `${at}/${next.json.id}`, { as })).status, 200);
        await issue(at);
        await refused(at, { name: 'one more' });
        await database.rows(sql`delete from ${credentials} where ${mine}`);
      });
    }

    t.test('keys of an environment that is not there are 404', async (t) => {
      const at = '/control/v1/environments/env_x/keys';
      for (const answer of [
        await call('POST', at, { as, body: { name: 'x' } }),
        await call('GET', at, { as }),
        await call('POST', `${at}/key_x/rotate`, { as }),
      ]) {
        checkRefusal(t, answer, 404, 'no environment');
        t.equal(answer.json.error.details.error_code, 'environment_not_found');
      }
    });

    t.test('a caller may revoke the very key that it calls with', async (t) => {
      const { id, key } = await issue('/control/v1/keys');
      t.equal((await call('DELETE', `/control/v1/keys/${id}`, { as: key })).status, 200);
      await refusedSoon(null, key);
    });

    t.test('a caller is told with what its key says', async (t) => {
      const [environment, api] = await kinds(server);
      const [first, second, third] = [
        await issue(environment.at, { name: 'patient', min_queued_age_ms: 86_400_000 }),
        await issue(api.at, { name: 'dashboard', role: 'read_only' }),
        await issue(environment.at, { name: 'eager', min_queued_age_ms: 0 }),
      ];
      const callers = createCallers({ database, operatorKey: OPERATOR_KEY });
      t.teardown(() => callers.close());
      const { environmentId } = environment;
      const kind = 'environment';
      for (let n = 0; n < 2; n++) {
        t.strictSame(await Promise.all([first.key, second.key, third.key, OPERATOR_KEY].map(callers.identify)), [
          {
            kind,
            keyId: first.id,
            keyName: 'patient',
            keyHash: hashSecret(first.key),
            environmentId,
            minQueuedAgeMs: 86_400_000,
          },
          { kind: 'api', keyId: second.id, keyName: 'dashboard', keyHash: hashSecret(second.key), role: 'read_only' },
          { kind, keyId: third.id, keyName: 'eager', keyHash: hashSecret(third.key), environmentId, minQueuedAgeMs: 0 },
          {
            kind: 'api',
            keyId: 'operator',
            keyName: 'LEASEHOLD_API_KEY',
            keyHash: hashSecret(OPERATOR_KEY),
            role: 'operator',
          },
        ]);
      }
    });
  });
}
